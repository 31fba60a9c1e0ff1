"""What T5's objectives share whose noise is drawn token by token."""

from collections import Counter
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.objectives import BertStyleDenoising, DropTokens, MassStyleDenoising, ReplaceSpans
from t5x_lite.objectives.t5_denoising import mask_token_id

EOS, UNK = 1, 2
VOCABULARY = Vocabulary(300, 0, EOS, UNK, first_sentinel_id=299, num_sentinels=100)


def masks(objective, raw, count):
    keys = jax.random.split(jax.random.key(0), count)
    return np.asarray(jax.jit(jax.vmap(objective.noise_mask, (0, None)))(keys, jnp.asarray(raw, jnp.int32)))


@pytest.mark.parametrize(("noise_density", "count"), [(0.1, 3), (0.15, 5), (0.25, 8), (0.5, 16), (0.001, 1)])
def test_the_number_of_noise_tokens_is_exact(noise_density, count):
    objective = MassStyleDenoising(33, noise_density=noise_density).for_vocabulary(VOCABULARY)
    assert objective.raw_length == 32
    assert objective.num_noise_tokens == count
    assert (masks(objective, np.arange(10, 42), 50).sum(1) == count).all()


def test_every_set_of_tokens_is_equally_likely_and_special_ids_are_never_noise():
    objective = MassStyleDenoising(9, noise_density=0.3).for_vocabulary(VOCABULARY)
    drawn = masks(objective, [10, EOS, 10, 11, UNK, 12, 0, 13], 4000)
    counts = Counter(tuple(np.flatnonzero(mask).tolist()) for mask in drawn)
    possible = list(combinations([0, 2, 3, 5, 7], 2))
    assert set(counts) <= set(possible)
    assert chisquare([counts[outcome] for outcome in possible]).pvalue > 1e-3


def test_rows_of_hardly_any_text():
    row = np.full(32, UNK)
    row[[4, 9]] = 50
    for kind in (MassStyleDenoising, DropTokens):
        objective = kind(33, noise_density=0.25).for_vocabulary(VOCABULARY)
        text = np.pad(row, (0, objective.raw_length - 32), constant_values=EOS)
        assert np.flatnonzero(masks(objective, text, 3)[0]).tolist() == [4, 9]
    features = objective.corrupt(jax.random.key(0), {"ids": jnp.asarray(text, jnp.int32)})
    assert features["targets"].tolist() == [50, 50, EOS] + [0] * (objective.target_length - 3)
    assert features["inputs"].shape == (33,)
    assert features["inputs"][-1] == EOS


def test_what_stands_for_a_hidden_token():
    plain = Vocabulary(50)
    for kind in (BertStyleDenoising, MassStyleDenoising):
        with pytest.raises(InputError, match="no mask token and no sentinels; set tokenizer.extra_ids"):
            kind(32).for_vocabulary(plain)
    assert mask_token_id(Vocabulary(50, mask_id=7, first_sentinel_id=49, num_sentinels=3)) == 7
    assert mask_token_id(Vocabulary(50, first_sentinel_id=49, num_sentinels=3)) == 49
    DropTokens(32).for_vocabulary(plain)


@pytest.mark.parametrize(
    ("objective", "change", "message"),
    [
        (MassStyleDenoising, {"noise_density": 0.0}, "noise_density=0.0 is not in .0, 1.; choose e.g. 0.15"),
        (DropTokens, {"noise_density": float("nan")}, "noise_density=nan"),
        (ReplaceSpans, {"noise_density": 1.0}, "noise_density=1.0"),
        (BertStyleDenoising, {"random_share": 1.1}, "random_share=1.1"),
    ],
)
def test_fields_out_of_range(objective, change, message):
    with pytest.raises(InputError, match=message):
        objective(**change)
