"""ELECTRA: a small generator and a discriminator over shared embeddings (Clark et al. 2020)."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.errors import InputError
from t5x_lite.layers.transformer import Remat
from t5x_lite.models.base import Architecture, ModelConfig
from t5x_lite.models.encoder import Encoder, EncoderConfig
from t5x_lite.validation import Positive

Part = Literal["discriminator", "generator"]


@dataclass(frozen=True)
class ElectraConfig(EncoderConfig):
    """The architecture of one of ELECTRA's two networks. The defaults are the base discriminator, without its head."""

    token_embed_dim: Positive = 768
    """Width of the embeddings; where embed_dim differs, a dense layer projects them."""
    num_segments: Positive = 2
    """Rows of the segment embedding: the two sentences of a pair."""

    known_heads: ClassVar[tuple[str, ...]] = ("masked_lm", "replaced_token")
    # The generator's head has the exact GELU whatever the layers have.
    token_activation: ClassVar[str] = "gelu"
    row_activation: ClassVar[str] = "gelu"
    drops_first: ClassVar[bool] = True


@dataclass(frozen=True)
class ElectraPairConfig(ModelConfig):
    """Generator and discriminator as they are trained: together, with the embeddings in common (section 3.2)."""

    generator: ElectraConfig
    """Fills in hidden tokens; smaller than the discriminator (section 3.2). Needs the head masked_lm."""
    discriminator: ElectraConfig
    """Finds the tokens that were filled in; what is kept in the end. Needs the head replaced_token."""

    architecture: ClassVar[Architecture] = "encoder"
    networks: ClassVar[tuple[str, ...]] = ("discriminator", "generator")
    below_layers: ClassVar[tuple[str, ...]] = ("embeddings", "generator/projection", "discriminator/projection")

    def __post_init__(self) -> None:
        for field in ("vocab_size", "token_embed_dim", "max_length", "num_segments", "norm_epsilon"):
            ours, theirs = getattr(self.generator, field), getattr(self.discriminator, field)
            if ours != theirs:
                raise InputError(
                    f"generator.{field}={ours} is not discriminator.{field}={theirs}; choose one value, since the two "
                    "share their embeddings"
                )
        for field in ("embed_dim", "num_layers", "num_heads", "mlp_dim"):
            ours, theirs = getattr(self.generator, field), getattr(self.discriminator, field)
            if ours > theirs:
                raise InputError(
                    f"the generator is larger than its discriminator: generator.{field}={ours} exceeds "
                    f"discriminator.{field}={theirs}; choose {theirs} or less"
                )
        for part, head in (("generator", "masked_lm"), ("discriminator", "replaced_token")):
            if head not in getattr(self, part).heads:
                raise InputError(
                    f"{part}.heads={getattr(self, part).heads} lacks {head}; set {part}.heads to ('{head}',)"
                )

    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return self.discriminator.abstract_inputs()

    @property
    def sharded_sizes(self) -> dict[str, int]:
        return {"num_heads": self.num_heads}

    @property
    def vocab_size(self) -> int:
        return self.discriminator.vocab_size

    @property
    def num_heads(self) -> int:
        return math.gcd(self.generator.num_heads, self.discriminator.num_heads)

    def build(self, *, dtype: Any = jnp.float32, remat: Remat = "none") -> "ElectraPair":
        return ElectraPair(self, dtype=dtype, remat=remat)

    def separate(self, params: Any, part: Part) -> tuple[ElectraConfig, Any]:
        """(config, parameters) of one of the two as an encoder of its own, the shared embeddings in it."""
        return getattr(self, part), {"embeddings": params["embeddings"]} | params[part]


class ElectraPair(nn.Module):
    """`generator` and `discriminator`, both an `Encoder` on `embeddings`. Used inside `apply` through these three."""

    config: ElectraPairConfig
    dtype: Any = jnp.float32
    remat: Remat = "none"

    def setup(self) -> None:
        c = self.config
        self.embeddings = c.discriminator.embeddings(self.dtype)
        self.generator = Encoder(c.generator, self.dtype, self.remat, self.embeddings)
        self.discriminator = Encoder(c.discriminator, self.dtype, self.remat, self.embeddings)

    def __call__(
        self, inputs: Int[Array, "B L"], segments: Int[Array, "B L"] | None = None, **options: Any
    ) -> dict[str, dict[str, Float[Array, "B L _"] | Float[Array, "B L"]]]:
        """The outputs of `generator` and `discriminator` for the same rows: see `Encoder`."""
        return {name: getattr(self, name)(inputs, segments, **options) for name in ("generator", "discriminator")}


def _presets() -> dict[str, ModelConfig]:
    base = ElectraConfig(heads=("replaced_token",))
    small = replace(base, token_embed_dim=128, embed_dim=256, num_heads=4, mlp_dim=1024)
    large = replace(base, token_embed_dim=1024, embed_dim=1024, num_heads=16, mlp_dim=4096, num_layers=24)
    narrow = {"embed_dim": 256, "num_heads": 4, "mlp_dim": 1024, "heads": ("masked_lm",)}
    pairs = {
        "small": (replace(small, embed_dim=64, num_heads=1, mlp_dim=256, heads=("masked_lm",)), small),
        "base": (replace(base, **narrow), base),
        "large": (replace(large, **narrow), large),
    }
    return (
        {f"electra-{size}": ElectraPairConfig(*pair) for size, pair in pairs.items()}
        | {f"electra-{size}-generator": generator for size, (generator, _) in pairs.items()}
        | {f"electra-{size}-discriminator": discriminator for size, (_, discriminator) in pairs.items()}
    )


PRESETS: dict[str, ModelConfig] = _presets()
"""The published sizes under their public names: `electra-small-generator` .. `electra-large-discriminator` with their
heads, and `electra-small` .. `electra-large`, the two together."""
