"""Floating-point operations of a train step, counted in the traced forward pass."""

import math
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.kernels.dense_attention import VISIBLE
from t5x_lite.kernels.masks import MODEL_FLOPS
from t5x_lite.models.base import ModelConfig, abstract_params
from t5x_lite.objectives.base import Objective, corrupt_rows, with_memory
from t5x_lite.retrieval.index import Corpus


def step_flops(model: ModelConfig, objective: Objective, batch_size: int) -> int:
    """The operations of all matrix products and convolutions of one train step: three times those of the forward pass.

    A product of [n, k] and [k, m] is 2 n k m, and the backward pass has two for each of the forward pass; what is
    computed again to save memory does not count, and neither do other operations. Of causal attention half of the pairs
    of tokens count, since a kernel leaves out the others; masks that depend on the text hide none. A frozen teacher has
    a forward pass alone, as have the search in an index and the passages that are encoded for it; parameters that the
    optimizer freezes count as if they were trained.

    Args:
      model: the trained model.
      objective: knows its vocabulary, which the shapes of its features do not depend on.
      batch_size: rows of a step.
    """
    # Of two rows, since losses over the vocabulary cut their tokens into two chunks or more and pad the last one.
    batch = abstract_batch(objective.layout.batch_spec, 2)

    def features_of(batch: Any) -> Any:
        features = corrupt_rows(objective, jax.random.key(0), batch)
        return with_memory(features, batch, objective.memory(model, 2, jnp.float32))

    features = jax.eval_shape(features_of, batch)
    params = nn.unbox(abstract_params(model))

    def forward(frozen: Any) -> int:
        def loss(params: Any, features: Any, frozen: Any) -> Any:
            return objective.loss(model.build(), params, features, None, frozen=frozen)[0]

        return count_flops(jax.make_jaxpr(loss)(params, features, frozen).jaxpr) // 2

    frozen = nn.unbox(objective.abstract_frozen(model))
    if objective.corpus_layout is not None:
        index = nn.unbox(jax.eval_shape(partial(objective.first_index, model), params))
        of_index = count_flops(
            jax.make_jaxpr(partial(objective.next_index, model.build()))(index, params, frozen, jnp.int32(0)).jaxpr
        )
        searched = 2 * index.vectors.size  # of a question, by all passages
        return batch_size * (3 * forward(Corpus(frozen, index.vectors)) - 2 * searched) + of_index
    trained = forward(None)
    with_teacher = trained if frozen is None else forward(frozen)
    return batch_size * (with_teacher + 2 * trained)


def count_flops(jaxpr: Jaxpr) -> int:
    """The operations of every matrix product and convolution in a jaxpr, times the steps of a scan or a kernel's grid.

    Of a branch the most expensive counts, of a `while` loop, whose length is not known before it runs, one iteration.

    >>> count_flops(jax.make_jaxpr(lambda x, y: jax.lax.scan(lambda c, _: (c @ y, None), x, length=3)[0])(
    ...     jnp.ones((2, 5)), jnp.ones((5, 5))).jaxpr)
    300
    """
    total = 0
    for equation in jaxpr.eqns:
        visible = re.search(rf"{VISIBLE}_(\d+)_of_(\d+)", str(equation.source_info.name_stack))
        flops = _flops_of(equation)
        total += flops * int(visible[1]) // int(visible[2]) if visible else flops
    return total


def _flops_of(equation: JaxprEqn) -> int:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return 2 * equation.outvars[0].aval.size * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel, outputs = equation.invars[1].aval, params["dimension_numbers"].rhs_spec[0]
        # A transposed convolution reads zeros between its inputs, which are not multiplied.
        zeros = math.prod(params["lhs_dilation"])
        return 2 * equation.outvars[0].aval.size * kernel.size // (kernel.shape[outputs] * zeros)
    if name == "cond":
        return max(count_flops(branch.jaxpr) for branch in params["branches"])
    times = params["length"] if name == "scan" else 1
    if name == "pallas_call":
        if MODEL_FLOPS in (metadata := params.get("metadata") or {}):
            return int(metadata[MODEL_FLOPS])
        times = math.prod(params["grid_mapping"].grid)
    inner = [value for value in params.values() if isinstance(value, ClosedJaxpr | Jaxpr)]
    return times * sum(count_flops(getattr(program, "jaxpr", program)) for program in inner)
