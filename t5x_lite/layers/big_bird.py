"""Block-sparse self-attention: global blocks, a window and random blocks (Zaheer et al. 2020, BigBird)."""

import functools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import Blocks
from t5x_lite.validation import NonNegative, Positive, Seed, Validated


@dataclass(frozen=True)
class BigBird(Validated):
    """Self-attention of blocks of tokens to a few other blocks, in time and memory linear in the length of rows.

    The first and the last block of a row are global: all tokens attend to them, and they to all (internal transformer
    construction, section 2). With `num_global_tokens` these are learned vectors in front of the row instead (extended
    transformer construction). Rows of no more than (5 + 2 `num_random_blocks`) blocks, for a window of three, attend to
    all tokens, as the published models do.
    """

    block_size: Positive = 64
    num_random_blocks: NonNegative = 3
    """That the tokens of a block attend to beside the others, drawn anew for each block, head and layer."""
    num_window_blocks: Positive = 3
    """Around a block, itself among them."""
    seed: Seed = 0
    """Of the random blocks: one seed, number of blocks, heads and layers always gives the same."""

    num_global_tokens: NonNegative = 0
    """Global tokens that are none of the row's, whole blocks of them; 0: the row's first and last block are global."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_global_tokens % self.block_size:
            raise InputError(
                f"num_global_tokens={self.num_global_tokens} are not whole blocks of block_size={self.block_size}; "
                f"choose {-(-self.num_global_tokens // self.block_size) * self.block_size}"
            )
        if self.num_window_blocks % 2 == 0:
            raise InputError(
                f"num_window_blocks={self.num_window_blocks} is not odd, with as many blocks before a block as after "
                f"it; choose {self.num_window_blocks + 1}"
            )

    @property
    def global_blocks(self) -> tuple[int, int]:
        """How many begin and how many end a row, the global tokens in front of it included."""
        return (self.num_global_tokens // self.block_size, 0) if self.num_global_tokens else (1, 1)

    def random_blocks(self, num_layers: int, num_heads: int, length: int) -> Int[Array, "N H Q R"] | None:
        """Those of rows of this length, by layer and head: see `Blocks.random`. None: all tokens are attended to.

        The length is that with global tokens.
        """
        num_global = sum(self.global_blocks)
        if length <= (num_global + self.num_window_blocks + 2 * self.num_random_blocks) * self.block_size:
            return None
        count = -(-length // self.block_size) - num_global
        return jnp.asarray(_drawn(self, num_layers, num_heads, count))

    def blocks(self, random: Int[Array, "H Q R"]) -> Blocks:
        """What the heads of a layer attend to."""
        return Blocks(random, self.block_size, *self.global_blocks, window=self.num_window_blocks)


@functools.lru_cache(maxsize=16)
def _drawn(attention: BigBird, num_layers: int, num_heads: int, count: int) -> np.ndarray:
    near = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) <= attention.num_window_blocks // 2
    tables = []
    for layer in range(num_layers):
        # Its numbers are the same in every release of NumPy.
        random = np.random.RandomState([attention.seed % 2**32, attention.seed >> 32, layer])
        order = np.where(near, 2.0, random.random_sample((num_heads, count, count)))
        tables.append(np.argsort(order, axis=-1, kind="stable")[..., : attention.num_random_blocks])
    return np.stack(tables).astype(np.int32)
