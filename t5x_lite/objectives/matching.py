"""Which of some things belongs to which, so that the costs of all pairs are the least."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.parallel.partitioning import on_each_device


def assign(costs: Float[Array, "B M Q"], valid: Bool[Array, "B M"]) -> Int[Array, "B M"]:
    """For each target the query that is its own, so that the sum of the costs is the least (Kuhn 1955, by Optax).

    Each device assigns its rows by itself: a loop over the rows of all would wait for the slowest one in each step.

    Args:
      costs: of each target with each query. What is not finite counts as much more than the others.
      valid: the targets that there are. The others have a constant cost, which changes no sum, and get a query that is
        left over; where there are more targets than queries, they have none first.

    Returns:
      Numbers of queries, all different; -1 for a target that has none.

    >>> costs = jnp.array([[[3.0, 1.0, 9.0], [2.0, 1.5, 9.0], [0.0, 0.0, 0.0]]])
    >>> assign(costs, jnp.array([[True, True, False]])).tolist()
    [[1, 0, 2]]
    """
    axes = {"costs": ("activation_batch", None, None), "valid": ("activation_batch", None)}

    def on_rows(arrays: dict[str, Array], _: dict[str, Array]) -> Int[Array, "b M"]:
        return jax.vmap(_assign_one)(arrays["costs"], arrays["valid"])

    return on_each_device(on_rows, {"costs": costs, "valid": valid}, axes, ("activation_batch", None))


def _assign_one(costs: Float[Array, "M Q"], valid: Bool[Array, "M"]) -> Int[Array, "M"]:
    costs = costs.astype(jnp.float32)
    is_finite = jnp.isfinite(costs)
    highest = jnp.where(is_finite & valid[:, None], costs, -jnp.inf).max(initial=0.0)
    costs = jnp.where(valid[:, None], jnp.where(is_finite, costs, highest + 1000.0), highest + 1.0)
    targets, queries = optax.assignment.hungarian_algorithm(costs)
    return jnp.full(len(costs), -1, jnp.int32).at[targets].set(queries.astype(jnp.int32))
