"""How arrays lie on the devices while they are used, in logical axes; where no mesh is in use, all of this is nothing.

What an axis means is said by the rules of whoever traces the function (`t5x_lite.parallel.use_mesh`).
"""

from typing import Any

import jax
from flax import linen as nn
from jaxtyping import Array, Float


def place(x: Array, *axes: str | None) -> Array:
    """`x` with each dimension cut along its logical axis; a dimension of one is not cut."""
    axes = tuple(axis if size > 1 else None for axis, size in zip(axes, x.shape, strict=True))
    return nn.with_logical_constraint(x, axes)


def is_cut(axis: str) -> bool:
    """Whether the devices share out a dimension with this logical axis."""
    return nn.logical_to_mesh_axes((axis,))[0] is not None


def whole_rows(parameter: Float[Array, "*_"], axes: tuple[str, ...], dtype: Any) -> Float[Array, "*_"]:
    """A parameter as it is used: in `dtype`, and brought together along the axis `embed`.

    Devices that share out a matrix along `embed` share out the batch too, so each needs the whole of it for its rows.
    Said here, because the compiler may find it less to send the activations around.
    """
    return place(parameter.astype(dtype), *(None if axis == "embed" else axis for axis in axes))


def shared_out(matrix: Float[Array, "I O"], axes: tuple[str, str], dtype: Any) -> Float[Array, "I O"]:
    """`whole_rows`, of whose gradient each device gets the share that it has of the parameter, and no more.

    The compiler then adds gradients up and cuts them in one (reduce-scatter), and not one after the other.
    """

    def forward(matrix: Float[Array, "I O"]) -> tuple[Float[Array, "I O"], None]:
        return whole_rows(matrix, axes, dtype), None

    def backward(_: None, gradient: Float[Array, "I O"]) -> tuple[Float[Array, "I O"]]:
        return (place(gradient, *axes).astype(matrix.dtype),)

    used = jax.custom_vjp(lambda matrix: forward(matrix)[0])
    used.defvjp(forward, backward)
    return used(matrix)
