from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from t5x_lite.objectives import SpanCorruption, corrupt_rows


@dataclass(frozen=True)
class Draw(SpanCorruption):
    """Says which random numbers each row gets."""

    def corrupt(self, key, row):
        return {"drawn": jax.random.bits(key, (2,)), "raw": row["ids"]}


RAW = jnp.arange(12).reshape(6, 2)


def test_rows_have_keys_of_their_own_and_keep_their_ids():
    features = corrupt_rows(Draw(), jax.random.key(0), {"ids": RAW})
    assert len(np.unique(features["drawn"])) == 12
    np.testing.assert_array_equal(features["raw"], RAW)


def test_a_part_of_the_batch_is_a_slice_of_the_whole():
    whole = corrupt_rows(Draw(), jax.random.key(0), {"ids": RAW})
    for first in (0, 2, 5):
        part = corrupt_rows(Draw(), jax.random.key(0), {"ids": RAW[first:]}, first)
        jax.tree.map(lambda w, p, first=first: np.testing.assert_array_equal(w[first:], p), whole, part)


@dataclass(frozen=True)
class DrawOfBatch(Draw):
    """Says besides which random numbers the batch gets."""

    def corrupt_batch(self, key, features):
        return features | {"of_batch": jax.random.bits(key, (2,))}


def test_a_batch_has_a_key_of_its_own_and_leaves_those_of_rows():
    without = corrupt_rows(Draw(), jax.random.key(0), {"ids": RAW})
    features = corrupt_rows(DrawOfBatch(), jax.random.key(0), {"ids": RAW})
    np.testing.assert_array_equal(features["drawn"], without["drawn"])
    assert len(np.unique(jnp.concatenate([features["drawn"].ravel(), features["of_batch"]]))) == 14
