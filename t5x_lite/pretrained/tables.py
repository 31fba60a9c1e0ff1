"""What a model has learned by itself, without any text: vectors of tokens and of positions."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from t5x_lite.layers.positions import sinusoidal_positions
from t5x_lite.models import EncoderDecoderConfig, ModelConfig

if TYPE_CHECKING:
    from t5x_lite.pictures import Picture


class Neighbour(NamedTuple):
    """A token whose vector points where another one's does."""

    token: str
    similarity: float
    """The cosine of the two vectors."""


def token_vectors(params: Any) -> Float[np.ndarray, "V D"]:
    """The vectors with which the (first) stack reads its tokens."""
    table = params["token_embedding"] if "token_embedding" in params else params["embeddings"]["token"]
    return np.asarray(table["embedding"])


def nearest(table: Float[np.ndarray, "V D"], vector: Float[np.ndarray, "D"], k: int) -> list[tuple[int, float]]:
    """(row, cosine) of the `k` rows that point most where `vector` does, the nearest first."""
    lengths = np.linalg.norm(table, axis=1) * np.linalg.norm(vector)
    cosines = table @ vector / np.maximum(lengths, 1e-30)
    best = np.argsort(-cosines, kind="stable")[:k]
    return [(int(row), float(cosines[row])) for row in best]


def draw_positions_of(config: ModelConfig, params: Any) -> "Picture":
    """What the model knows of positions: vectors, learned or sinusoids, or T5's bias."""
    from t5x_lite.pictures import RelativeBias, draw_positions, draw_relative_bias

    biases = {
        name.removesuffix("position_bias").strip("_") or "decoder": RelativeBias(
            np.asarray(params[name]["bias"]),
            bidirectional=name == "encoder_position_bias" or getattr(config, "full_prefix", False),
            max_distance=config.relative_max_distance,
        )
        for name in ("encoder_position_bias", "decoder_position_bias", "position_bias")
        if name in params
    }
    return draw_relative_bias(biases) if biases else draw_positions(_position_tables(config, params))


def _position_tables(config: ModelConfig, params: Any) -> dict[str, Float[np.ndarray, "P D"]]:
    if isinstance(config, EncoderDecoderConfig) and config.positions == "sinusoidal":
        return {"both stacks": sinusoidal_positions(config.max_length, config.embed_dim)}
    places = {"encoder": "encoder_embeddings", "decoder": "decoder_embeddings"}
    if "embeddings" in params:
        places = {"encoder": "embeddings"}
    elif "position" in params:
        return {"decoder": np.asarray(params["position"]["embedding"])}
    tables = {name: np.asarray(params[place]["position"]["embedding"]) for name, place in places.items()}
    # Some families have rows before that of the first position.
    most = getattr(config, "discriminator", config).max_length
    return {name: table[-most:] for name, table in tables.items()}
