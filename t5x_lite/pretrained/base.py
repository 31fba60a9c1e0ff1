"""What every model in a notebook has: its weights, its tables of tokens and positions, clear errors."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from flax import linen as nn
from jaxtyping import Float

from t5x_lite.convert import export_folder
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.errors import InputError
from t5x_lite.files import check_is_new
from t5x_lite.layers.positions import sinusoidal_positions
from t5x_lite.models import ModelConfig
from t5x_lite.models.electra import Part
from t5x_lite.tokenizers.base import format_token
from t5x_lite.training.experiment import Experiment

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
    if getattr(config, "positions", None) == "sinusoidal":
        return {"both stacks": sinusoidal_positions(config.max_length, config.embed_dim)}
    homes = {"encoder": "encoder_embeddings", "decoder": "decoder_embeddings"}
    if "embeddings" in params:
        homes = {"encoder": "embeddings"}
    elif "position" in params:
        return {"decoder": np.asarray(params["position"]["embedding"])}
    tables = {name: np.asarray(params[home]["position"]["embedding"]) for name, home in homes.items()}
    # Some families have rows before that of the first position.
    most = getattr(config, "discriminator", config).max_length
    return {name: table[-most:] for name, table in tables.items()}


def _unavailable(name: str, doc: str) -> Callable[..., Any]:
    """A method that some kinds of models have; of the others it raises an `InputError` that names those they have."""

    def method(self: "Pretrained", *args: Any, **kwargs: Any) -> NoReturn:
        self._cannot(name)

    method.__name__, method.__qualname__, method.__doc__ = name, f"Pretrained.{name}", doc
    return method


@dataclass(frozen=True)
class Pretrained:
    """A model with its weights and its tokenizer, on one device.

    `module.apply({"params": params}, ...)` is the pure function below it. Every method of every kind of model has its
    name here; one that this model cannot follow raises an `InputError` that names those it can.
    """

    config: ModelConfig
    module: nn.Module
    params: Any
    tokenizer: Tokenizer | None
    experiment: Experiment | None = None
    """The run that made it; None for a Hugging Face folder."""
    known_vocabulary: Vocabulary | None = None
    """Its special ids, where they are known without a tokenizer."""
    generation: GenerationDefaults = GenerationDefaults()
    """What a Hugging Face folder, or the run that began as one, says of how its model writes."""

    @property
    def abilities(self) -> tuple[str, ...]:
        """The methods that this model can follow; of a model that only its module knows, none of these."""
        return ("module.apply",)

    def export(self, folder: str | Path, *, part: Part | None = None) -> None:
        """Writes a Hugging Face folder, which `t5x_lite.load` and Transformers' `from_pretrained` open.

        Args:
          folder: must not exist, or be empty.
          part: of ELECTRA's two networks the one to write; the discriminator if not given.

        Raises `InputError` for a folder that is not empty, and a model that Transformers has no class for.
        """
        folder = Path(folder).expanduser()
        check_is_new(folder, "folder")
        if part and not self.config.networks:
            raise InputError(f"part={part!r}: a {type(self.config).__name__} is one network, no pair; leave part out")
        export_folder(
            folder,
            self.config,
            self.params,
            self.tokenizer,
            # Without a tokenizer, and if nobody said them, the ids are those of the published models.
            vocabulary=None if self.generation.pad_id is None else self._vocabulary,
            generation=self.generation,
            part=part or "discriminator",
        )

    def neighbours(self, text: str, k: int = 10) -> list[Neighbour]:
        """The `k` tokens whose embeddings are nearest to that of `text` by cosine, the nearest first.

        Of a text of several tokens the mean of their vectors is compared, and none of them is among the answers. In
        vocabularies that know a word by the blank before it, as GPT-2's, the blank has to stand in the text.
        """
        tokenizer, table = self._tokenizer(), token_vectors(self.params)
        size = tokenizer.vocabulary.size
        ids = tokenizer.encode(text) if isinstance(text, str) else []
        if not ids:
            raise InputError(f"text={text!r} holds no token; give a word")
        if not 1 <= k <= size - len(set(ids)):
            raise InputError(f"k={k} is out of range; choose 1 to {size - len(set(ids))}")
        found = nearest(table[:size], table[ids].mean(axis=0), k + len(set(ids)))
        others = [(token_id, cosine) for token_id, cosine in found if token_id not in ids][:k]
        return [Neighbour(format_token(tokenizer, token_id), cosine) for token_id, cosine in others]

    def plot_positions(self) -> "Picture":
        """What the model knows of positions: vectors and their likeness, or T5's bias by distance."""
        return draw_positions_of(self.config, self.params)

    attention = _unavailable("attention", "Where tokens look, in every layer and head: see each kind of model.")
    generate = _unavailable("generate", "Text, by a model that writes: see `PretrainedTextModel`.")
    generate_ids = _unavailable("generate_ids", "Ids, by a model that writes: see `PretrainedTextModel`.")
    score = _unavailable("score", "How likely answers are, to a model that writes: see `PretrainedTextModel`.")
    fill_mask = _unavailable("fill_mask", "Suggestions for hidden tokens: see `PretrainedEncoder`.")
    encode = _unavailable("encode", "Vectors of texts or tokens: see `PretrainedEncoder`.")
    encode_words = _unavailable("encode_words", "Vectors of words: see `PretrainedEncoder`.")
    detect_replacements = _unavailable("detect_replacements", "Which tokens do not belong: see `PretrainedEncoder`.")
    classify = _unavailable("classify", "Which class texts are of: see `PretrainedEncoder`.")
    choose = _unavailable("choose", "How likely each of several answers is: see `PretrainedEncoder`.")
    tag = _unavailable("tag", "The tags of words: see `PretrainedEncoder`.")
    answer = _unavailable("answer", "The answer to a question in a text: see `PretrainedEncoder`.")

    def _cannot(self, method: str) -> NoReturn:
        *others, last = self.abilities
        name, can = type(self.config).__name__, f"{', '.join(others)} and {last}" if others else last
        article = "an" if name[0] in "AEIOU" else "a"
        raise InputError(f"{article} {name} cannot {method}; use {can}, or load another model")

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError("this checkpoint came without a tokenizer; give ids instead of text")
        return self.tokenizer

    @property
    def _vocabulary(self) -> Vocabulary:
        if self.tokenizer:
            return self.tokenizer.vocabulary
        return self.known_vocabulary or Vocabulary(self.config.vocab_size)
