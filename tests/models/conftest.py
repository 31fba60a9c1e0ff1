"""What the tests of models that write text share."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.layers.embedding import Embedding


@pytest.fixture(scope="session")
def influence() -> Callable[..., np.ndarray]:
    """`influence(module, params, length, *args, **kwargs)`: how much each of `length` tokens moves what is said behind
    each, [position of the logits, position of the token]: zero where no gradient flows.

    Meant are the tokens of the argument that is the only one of this length.
    """

    def measure(module: nn.Module, params: Any, length: int, *args: Any, **kwargs: Any) -> np.ndarray:
        def logits(moved: jax.Array) -> jax.Array:
            def move(call: Callable, args: tuple, kwargs: dict, context: Any) -> Any:
                embedded = call(*args, **kwargs)
                looked_up = isinstance(context.module, Embedding) and context.method_name == "__call__"
                return embedded + moved if looked_up and embedded.shape[1] == length else embedded

            with nn.intercept_methods(move):
                said = module.apply({"params": params}, *args, **kwargs)
            # Logits, not probabilities: their sum over the vocabulary would not move.
            return (said**2).sum((0, 2))

        nowhere = jnp.zeros((args[0].shape[0], length, module.config.embed_dim))
        jacobian = jax.jit(jax.jacrev(logits))(nowhere)
        return np.abs(np.asarray(jacobian)).max((1, 3))

    return measure
