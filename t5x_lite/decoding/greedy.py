"""Greedy decoding of a batch with one start id, as training does it to show what a model says."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Int

from t5x_lite.decoding.decode import decode
from t5x_lite.decoding.methods import Greedy


def greedy_decode(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B M"],
    *,
    max_length: int,
    inputs_valid: Bool[Array, "B M"] | None = None,
    start_id: int = 0,
    eos_id: int | None = 1,
    pad_id: int = 0,
) -> Int[Array, "B L"]:
    """The ids written, EOS included, padding behind: see `decode`. `start_id` is what each decoder reads first."""
    decoded = decode(
        module,
        params,
        inputs,
        method=Greedy(),
        start_ids=jnp.full(len(inputs), start_id, jnp.int32),
        max_length=max_length,
        inputs_valid=inputs_valid,
        eos_id=eos_id,
        pad_id=pad_id,
    )
    return decoded.ids[:, 0]
