from collections import Counter
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from t5x_lite.objectives import Deshuffling, corrupt_rows

EOS, UNK = 1, 2


def test_all_orders_are_equally_likely_and_special_ids_keep_their_places(t5_vocabulary):
    objective = Deshuffling(8).for_vocabulary(t5_vocabulary)
    row = np.array([10, EOS, 11, 12, UNK, 0, 13], np.int32)
    features = jax.jit(lambda raw: corrupt_rows(objective, jax.random.key(0), {"ids": raw}))(jnp.tile(row, (6000, 1)))
    inputs = np.asarray(features["inputs"])
    assert (np.asarray(features["targets"]) == [*row, EOS]).all()
    assert (inputs[:, [1, 4, 5, 7]] == [EOS, UNK, 0, EOS]).all()
    counts = Counter(map(tuple, inputs[:, [0, 2, 3, 6]].tolist()))
    possible = list(permutations([10, 11, 12, 13]))
    assert set(counts) <= set(possible)
    assert chisquare([counts[outcome] for outcome in possible]).pvalue > 1e-3
