"""A language model that is a table of numbers, so that decoding alone is at work, and compiles at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

STATES, VOCABULARY, EOS, PAD = 97, 6, 1, 0


@dataclass(frozen=True)
class TableConfig:
    vocab_size: int = VOCABULARY


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TableCache:
    state: jax.Array

    def repeat(self, times: int) -> "TableCache":
        return replace(self, state=jnp.repeat(self.state, times))

    def take(self, rows: jax.Array) -> "TableCache":
        return replace(self, state=self.state[rows])


class Table(nn.Module):
    """The logits of the next token are a row of the table; which one, all tokens before it decide."""

    config: TableConfig = TableConfig()

    def start_decoding(self, inputs: Any, *, inputs_valid: Any = None, max_length: int) -> TableCache:
        return TableCache(inputs.sum(axis=1) % STATES)

    def decode_step(self, tokens: jax.Array, cache: TableCache, index: jax.Array) -> tuple[jax.Array, TableCache]:
        state = next_state(cache.state, tokens[:, 0], index)
        return self.get_variable("params", "table")[state][:, None], TableCache(state)


def next_state(state: Any, token: Any, index: Any) -> Any:
    return (5 * state + 3 * token + 7 * index + 1) % STATES


@pytest.fixture(scope="session")
def table() -> np.ndarray:
    """Logits of a moderately sure model."""
    return (1.5 * np.random.default_rng(0).normal(size=(STATES, VOCABULARY))).astype(np.float32)


@pytest.fixture(scope="session")
def model(table) -> tuple[nn.Module, Any]:
    return Table(), {"table": jnp.asarray(table)}


@pytest.fixture(scope="session")
def log_probabilities(table) -> Callable[[int, list[int]], np.ndarray]:
    """`log_probabilities(state, tokens)`: of each token given those before it, behind start id 0."""
    normed = np.asarray(jax.nn.log_softmax(table, axis=-1), np.float64)

    def of(state: int, tokens: list[int]) -> np.ndarray:
        found, last = [], PAD
        for index, token in enumerate(tokens):
            state = next_state(state, last, index)
            found.append(normed[state, token])
            last = token
        return np.array(found)

    return of


@pytest.fixture(scope="session")
def every_text(log_probabilities) -> Callable[[int, int], dict[tuple[int, ...], float]]:
    """`every_text(state, length)`: the log-probability of every text that ends with EOS or has that length."""

    def of(state: int, length: int) -> dict[tuple[int, ...], float]:
        texts, open_ones = {}, [()]
        for _ in range(length):
            longer = [(*text, token) for text in open_ones for token in range(VOCABULARY)]
            texts |= {text: float(log_probabilities(state, list(text)).sum()) for text in longer if text[-1] == EOS}
            open_ones = [text for text in longer if text[-1] != EOS]
        return texts | {text: float(log_probabilities(state, list(text)).sum()) for text in open_ones}

    return of
