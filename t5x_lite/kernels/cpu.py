"""Products and sums as XLA's CPU backend computes them fastest; on other platforms the plain operations."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from t5x_lite.kernels.platform import platform

SUM = "sum_by_a_product"
"""The name in a program of products that only add up; they count for no model's operations."""
BLOCK = 64
"""Columns of a matrix that lie together in `PackedWeights`."""
BLOCKS_AT_ONCE = 16
"""In one product of them, for which the rows are laid out once for each."""
MOST_PRODUCTS = 32
"""For one matrix, however large: each takes time to compile."""
FEW_ROWS = 8
"""As many are multiplied faster by blocks of columns than by the transposed matrix."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PackedWeights:
    """A matrix for many products of few rows on a CPU: cut into blocks of columns, or transposed.

    Up to `FEW_ROWS` rows stay in registers and cache while a block is read in the order of memory. A dozen rows are
    multiplied 1.4 times as fast by the transposed matrix as by blocks, and 1.6 times as fast as by the matrix itself
    (beams of T5-small, AMD EPYC): XLA reads the left side of a product faster than the right.
    """

    parts: tuple[Float[Array, "_ I C"], ...] | tuple[Float[Array, "O I"]]
    """The blocks of `BLOCK` columns, the last one filled up with zeros; or the transposed matrix."""
    features: int = field(metadata={"static": True})
    """O."""

    @classmethod
    def of(cls, matrix: Float[Array, "I O"], num_rows: int = 1) -> "PackedWeights":
        """The same matrix, laid out for products of so many rows."""
        inputs, features = matrix.shape
        if num_rows > FEW_ROWS:
            return cls((matrix.T,), features)
        filled = jnp.pad(matrix, ((0, 0), (0, -features % BLOCK)))
        blocks = filled.reshape(inputs, -1, BLOCK).swapaxes(0, 1)
        size = max(BLOCKS_AT_ONCE, -(-len(blocks) // MOST_PRODUCTS))
        return cls(tuple(blocks[n : n + size] for n in range(0, len(blocks), size)), features)

    def multiply(self, x: Float[Array, "*batch I"], dtype: Any, **options: Any) -> Float[Array, "*batch O"]:
        """`multiply` by the matrix."""
        flat = x.reshape(-1, x.shape[-1]).astype(dtype)
        num_rows = len(flat)
        if self.parts[0].ndim == 2:
            columns = keep_layout(jnp.einsum("OI,RI->OR", self.parts[0].astype(dtype), flat, **options))
            return columns.T.reshape(*x.shape[:-1], self.features)
        if num_rows == 1:
            # Two are faster than one: XLA has another, slower way to multiply a vector.
            flat = jnp.pad(flat, ((0, 1), (0, 0)))
        # Without the barriers XLA would lay out the blocks anew, not the rows.
        rows = keep_layout(jnp.broadcast_to(flat, (len(self.parts[0]), *flat.shape)))
        products = [
            keep_layout(jnp.einsum("NRI,NIC->NRC", rows[: len(part)], part.astype(dtype), **options))
            for part in self.parts
        ]
        y = jnp.concatenate([jax.lax.collapse(product.swapaxes(0, 1), 1) for product in products], axis=1)
        return y[:num_rows, : self.features].reshape(*x.shape[:-1], self.features)


def matmul(x: Float[Array, "*batch I"], matrix: Float[Array, "I O"], **options: Any) -> Float[Array, "*batch O"]:
    """x @ matrix; `options` are those of `jnp.matmul`."""
    if platform() != "cpu" or x.ndim != 2 or options:
        return jnp.matmul(x, matrix, **options)
    return _multiply_rows(x, matrix)


@jax.custom_vjp
def _multiply_rows(x: Float[Array, "R I"], matrix: Float[Array, "I O"]) -> Float[Array, "R O"]:
    """x @ matrix, with the gradient of the matrix as XLA's CPU backend adds it up over the rows fastest.

    That is with plain matrices, the left one laid out anew, and with a result no taller than wide: forward and backward
    take 5 to 7 % less time by 4,096 rows and kernels of 512 x 2,048 or 2,048 x 512.
    """
    return x @ matrix


def _multiply_rows_backward(saved: tuple[Array, Array], of_y: Float[Array, "R O"]) -> tuple[Array, Array]:
    x, matrix = saved
    of_x = of_y @ matrix.T
    # Without the barriers XLA would make one product of each again.
    if matrix.shape[0] > matrix.shape[1]:
        return of_x, keep_layout(keep_layout(of_y.T) @ x).T
    return of_x, keep_layout(x.T) @ of_y


_multiply_rows.defvjp(lambda x, matrix: (x @ matrix, (x, matrix)), _multiply_rows_backward)


@jax.custom_vjp
def multiply_few_rows(x: Float[Array, "*batch I"], matrix: Float[Array, "I O"]) -> Float[Array, "*batch O"]:
    """x @ matrix in a loop; the gradient of x multiplies by the transposed matrix as `PackedWeights` does.

    By 512 x 2,048 that is 1.9 times as fast with 8 rows as `of_y @ matrix.T`, 1.2 times with 32, no faster with 64.
    """
    return x @ matrix


def _multiply_few_rows_backward(saved: tuple[Array, Array], of_y: Array) -> tuple[Array, Array]:
    x, matrix = saved
    of_x = PackedWeights((matrix,), matrix.shape[0]).multiply(of_y, x.dtype)
    return of_x, jnp.einsum("...I,...O->IO", x, of_y)


multiply_few_rows.defvjp(lambda x, matrix: (x @ matrix, (x, matrix)), _multiply_few_rows_backward)


def keep_layout(x: Array) -> Array:
    """`x`, on a CPU with a barrier: XLA would transpose the product that gives or reads it, and take up to three times
    as long."""
    return jax.lax.optimization_barrier(x) if platform() == "cpu" else x


def pack_weights(params: Any, num_rows: int) -> Any:
    """Parameters for many products of so many rows: on a CPU `PackedWeights` for kernels."""
    if platform() != "cpu":
        return params

    def pack(path: tuple[Any, ...], x: Array) -> Array | PackedWeights:
        return PackedWeights.of(x, num_rows) if path[-1:] == (jax.tree_util.DictKey("kernel"),) else x

    return jax.tree_util.tree_map_with_path(pack, params)


def sum_rows(x: Float[Array, "N *rest"]) -> Float[Array, "*rest"]:
    """The sum over the first dimension: on a CPU a product with ones, since XLA is ten times slower at wide sums."""
    if platform() != "cpu":
        return x.sum(axis=0)
    with jax.named_scope(SUM):
        return jnp.tensordot(jnp.ones(x.shape[0], x.dtype), x, axes=1)
