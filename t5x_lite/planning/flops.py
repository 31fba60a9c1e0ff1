"""Floating-point operations of a train step, counted in the traced forward pass."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp  # noqa: F401 (read by doctests)
from flax import linen as nn
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.models.base import ModelConfig, abstract_params
from t5x_lite.objectives.base import Objective, corrupt_rows


def step_flops(model: ModelConfig, objective: Objective, batch_size: int) -> int:
    """The operations of all matrix products and convolutions of one train step: three times those of the forward pass.

    A product of [n, k] and [k, m] is 2 n k m, and the backward pass has two for each of the forward pass; what is
    computed again to save memory does not count, and neither do other operations. Masked pairs of tokens count as all
    others do: they are computed (Chowdhery et al. 2022, appendix B, counts in the same way). A frozen teacher has a
    forward pass alone; parameters that the optimizer freezes count as if they were trained.

    Args:
      model: what is trained.
      objective: knows its vocabulary, which the shapes of its features do not depend on.
      batch_size: rows of a step.
    """
    trained = _forward_flops(model, objective, None)
    if objective.frozen_model is None:
        return batch_size * 3 * trained
    both = _forward_flops(model, objective, nn.unbox(abstract_params(objective.frozen_model)))
    return batch_size * (3 * trained + both - trained)


def _forward_flops(model: ModelConfig, objective: Objective, frozen: Any) -> int:
    """Of the loss of one row, without its corruption."""
    # Of two rows, since losses over the vocabulary cut their tokens into two chunks or more and pad the last one.
    batch = abstract_batch(objective.row_spec, 2)
    features = jax.eval_shape(lambda batch: corrupt_rows(objective, jax.random.key(0), batch), batch)

    def loss(params: Any, features: Any, frozen: Any) -> Any:
        return objective.loss(model.build(), params, features, None, frozen=frozen)[0]

    params = nn.unbox(abstract_params(model))
    return count_flops(jax.make_jaxpr(loss)(params, features, frozen).jaxpr) // 2


def count_flops(jaxpr: Jaxpr) -> int:
    """Of every matrix product and convolution in a jaxpr: those of a scan or of a kernel's grid as often as it runs.

    Of a branch the dearest counts, of a `while` loop, whose length is not known before it runs, one turn.

    >>> count_flops(jax.make_jaxpr(lambda x, y: jax.lax.scan(lambda c, _: (c @ y, None), x, length=3)[0])(
    ...     jnp.ones((2, 5)), jnp.ones((5, 5))).jaxpr)
    300
    """
    return sum(_equation_flops(equation) for equation in jaxpr.eqns)


def _equation_flops(equation: JaxprEqn) -> int:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return 2 * equation.outvars[0].aval.size * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel, outputs = equation.invars[1].aval, params["dimension_numbers"].rhs_spec[0]
        # A transposed convolution reads zeros between its inputs, which nobody multiplies.
        zeros = math.prod(params["lhs_dilation"])
        return 2 * equation.outvars[0].aval.size * kernel.size // (kernel.shape[outputs] * zeros)
    if name == "cond":
        return max(count_flops(branch.jaxpr) for branch in params["branches"])
    times = {"scan": lambda: params["length"], "pallas_call": lambda: math.prod(params["grid_mapping"].grid)}
    return times.get(name, lambda: 1)() * sum(map(count_flops, _inner(params)))


def _inner(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """The programs that an equation holds: the body of a loop, a jitted or rematerialised function."""
    for value in params.values():
        if isinstance(value, ClosedJaxpr | Jaxpr):
            yield value.jaxpr if isinstance(value, ClosedJaxpr) else value
