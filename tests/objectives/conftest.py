"""Rows of a small vocabulary, made by the formats themselves, and tiny encoders with random parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.data import Layout, Vocabulary
from t5x_lite.data.stored_rows import stack
from t5x_lite.models import ModelConfig
from t5x_lite.objectives import Objective, corrupt_rows


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """61 ids, special ones among the others; of the ids from 40 on every second one continues a word."""
    continues = (np.arange(61) >= 40) & (np.arange(61) % 2 == 1)
    return Vocabulary(
        size=61,
        pad_id=7,
        eos_id=31,
        unk_id=12,
        cls_id=0,
        sep_id=31,
        mask_id=60,
        continuations=np.packbits(continues).tobytes(),
    )


@pytest.fixture(scope="session")
def make_batch(vocabulary) -> Callable[..., dict[str, np.ndarray]]:
    """`make_batch(layout, count)`: rows from documents of one to nine short sentences. The first one has the most
    padding."""

    def make(layout: Layout, count: int = 200) -> dict[str, np.ndarray]:
        random = np.random.default_rng(0)
        text = np.setdiff1d(np.arange(vocabulary.size), vocabulary.special_ids).astype(np.int32)
        builder, rows = layout.start(vocabulary), []
        while len(rows) < count:
            for _ in range(200):
                builder.add([random.choice(text, random.integers(1, 9)) for _ in range(random.integers(1, 10))])
            builder.finish()
            rows += builder.take()
        rows = [rows[number] for number in random.permutation(len(rows))[:count]]
        rows.sort(key=lambda row: -max(map(_padding, row.values())))
        return stack([rows[0], *(rows[number] for number in 1 + random.permutation(count - 1))])

    def _padding(column: np.ndarray) -> int:
        return int((column == vocabulary.pad_id).sum())

    return make


@pytest.fixture(scope="session")
def make_rows(make_batch) -> Callable[..., np.ndarray]:
    """`make_rows(layout, count)`: the ids of `make_batch`, for layouts without other columns."""

    def make(layout: Layout, count: int = 200) -> np.ndarray:
        (ids,) = make_batch(layout, count).values()
        return ids

    return make


@pytest.fixture(scope="session")
def make_model(make_params) -> Callable[[ModelConfig, int], tuple[nn.Module, Any]]:
    """`make_model(config, seed)`: the module and random parameters of it."""

    def make(config: ModelConfig, seed: int = 0) -> tuple[nn.Module, Any]:
        ids = jnp.ones((1, 2), jnp.int32)
        return config.build(), make_params(config.build(), seed, ids, ids)

    return make


@pytest.fixture(scope="session")
def say() -> Callable[..., dict[str, Any]]:
    """`say(module, params, inputs, segments, pad_id)`: all that a model says of every position of some rows."""

    def all_of(module: nn.Module, params: Any, inputs: Any, segments: Any, pad_id: int) -> dict[str, Any]:
        call = jax.jit(lambda p, i, s: module.apply({"params": p}, i, s, inputs_valid=i != pad_id))
        return jax.tree.map(
            lambda x: np.asarray(x, np.float64), call(params, jnp.asarray(inputs), jnp.asarray(segments))
        )

    return all_of


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.fixture(scope="session")
def token_losses() -> Callable[..., np.ndarray]:
    """`token_losses(logits, features, pad_id)`: the cross entropy in nats of each token asked for, in one row of
    numbers; `logits` [B L V] are those of all positions. Rows with `valid` false ask for nothing."""

    def losses(logits: np.ndarray, features: dict[str, Any], pad_id: int) -> np.ndarray:
        found, scores = [], log_softmax(logits)
        valid = np.asarray(features.get("valid", np.ones(len(scores), bool)))
        for row in np.nonzero(valid)[0]:
            for position, target in zip(features["positions"][row], features["targets"][row], strict=True):
                if target != pad_id:
                    found.append(-scores[row, position, target])
        return np.array(found)

    return losses


@pytest.fixture(scope="session")
def t5_vocabulary() -> Vocabulary:
    """300 ids, as T5's tokenizer has them: the last 100 are sentinels, counted down."""
    return Vocabulary(300, pad_id=0, eos_id=1, unk_id=2, first_sentinel_id=299, num_sentinels=100)


@pytest.fixture(scope="session")
def corrupted(t5_vocabulary) -> Callable[[Objective], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """`corrupted(objective)`: (raw, inputs, targets) of 2,000 rows of ids from 10 on, each row's in another order."""

    def make(objective: Objective) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        objective = objective.for_vocabulary(t5_vocabulary)
        ids = np.arange(10, 10 + objective.layout.spec["ids"].size, dtype=np.int32)
        raw = np.random.default_rng(0).permuted(np.tile(ids, (2000, 1)), axis=1)
        features = jax.jit(lambda raw: corrupt_rows(objective, jax.random.key(0), {"ids": raw}))(raw)
        return raw, np.asarray(features["inputs"]), np.asarray(features["targets"])

    return make
