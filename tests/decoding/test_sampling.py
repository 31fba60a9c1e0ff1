import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.decoding import Sampling, decode
from t5x_lite.decoding.sampling import draw, sample_tokens

scipy_stats = pytest.importorskip("scipy.stats")

DRAWS = 5_000
LOGITS = 1.2 * np.random.default_rng(3).normal(size=300).astype(np.float32)


def softmax(logits):
    weights = np.exp(np.asarray(logits, np.float64) - logits.max())
    return weights / weights.sum()


def nucleus(probabilities, top_p):
    """The fewest most likely ones that hold `top_p`, by their definition."""
    order = np.argsort(-probabilities, kind="stable")
    number = np.searchsorted(np.cumsum(probabilities[order]), top_p) + 1
    kept = np.zeros_like(probabilities)
    kept[order[:number]] = probabilities[order[:number]]
    return kept / kept.sum()


def best(logits, number):
    cut = np.full_like(logits, -np.inf)
    order = np.argsort(-logits, kind="stable")[:number]
    cut[order] = logits[order]
    return cut


EXPECTED = {
    Sampling(): softmax(LOGITS),
    Sampling(temperature=0.5): softmax(LOGITS / 0.5),
    Sampling(temperature=2.0, top_k=7): softmax(best(LOGITS / 2.0, 7)),
    Sampling(top_p=0.6): nucleus(softmax(LOGITS), 0.6),
    Sampling(temperature=0.7, top_k=20, top_p=0.8): nucleus(softmax(best(LOGITS / 0.7, 20)), 0.8),
    Sampling(top_p=1e-6): nucleus(softmax(LOGITS), 1e-6),
}


@pytest.mark.parametrize("method", EXPECTED, ids=str)
def test_frequencies(method):
    uniform = jax.random.uniform(jax.random.key(1), (DRAWS,))
    logits = jnp.broadcast_to(LOGITS, (DRAWS, 300))
    tokens = np.asarray(jax.jit(sample_tokens, static_argnums=0)(method, logits, uniform))
    counts, expected = np.bincount(tokens, minlength=300), DRAWS * EXPECTED[method]
    assert not counts[expected == 0].any(), "what was cut away is never drawn"
    common = expected > 5
    if common.sum() > 1:
        rest = [counts[~common].sum(), expected[~common].sum()]
        seen, awaited = (np.append(x[common], y) for x, y in zip((counts, expected), rest, strict=True))
        keep = awaited > 0
        assert scipy_stats.chisquare(seen[keep], awaited[keep]).pvalue > 1e-3
    else:
        assert counts.max() == DRAWS


def test_equally_likely_tokens_at_the_edge_are_not_all_kept():
    logits = jnp.zeros((4000, 4))
    tokens = sample_tokens(Sampling(top_p=0.5), logits, jnp.linspace(0.0, 0.9999, 4000))
    assert np.bincount(np.asarray(tokens), minlength=4).tolist() == [2000, 2000, 0, 0]


def test_a_large_vocabulary_whose_better_part_is_large_or_small():
    """More tokens than are looked at first, in the second row."""
    random = np.random.default_rng(5)
    sure, unsure = 9 * random.normal(size=3000), 0.1 * random.normal(size=3000)
    uniform = jnp.asarray(random.uniform(size=64).astype(np.float32))
    for rows in ([sure], [unsure], [sure, unsure]):
        logits = np.repeat(np.array(rows, np.float32), 64, axis=0)
        tokens = np.asarray(sample_tokens(Sampling(top_p=0.9), jnp.asarray(logits), jnp.tile(uniform, len(rows))))
        for part, row in zip(tokens.reshape(len(rows), 64), rows, strict=True):
            probabilities = nucleus(softmax(np.float32(row)), 0.9)
            order = np.argsort(-probabilities, kind="stable")
            expected = order[np.searchsorted(np.cumsum(probabilities[order]), np.asarray(uniform))]
            assert (part == expected).mean() > 0.9, "but for rounding at the edges"
            assert (probabilities[part] > 0).all()


def test_no_weight_is_never_drawn():
    weights = jnp.array([[0.0, 1e-3, 0.0] + [0.0] * 200 + [1.0, 0.0]])
    assert draw(weights, jnp.array([0.0])).tolist() == [1]
    assert draw(weights, jnp.array([np.nextafter(np.float32(1), np.float32(0))])).tolist() == [203]


def sampled(model, method, inputs, rows=None, seed=0):
    start, inputs = jnp.zeros(len(inputs), jnp.int32), jnp.asarray(inputs)
    options = {"start_ids": start, "max_length": 12, "eos_id": 1, "pad_id": 0, "key": jax.random.key(seed)}
    decoded = decode(*model, inputs, method=method, rows=None if rows is None else jnp.asarray(rows), **options)
    return np.asarray(decoded.ids), np.asarray(decoded.scores)


def test_a_rows_numbers_are_its_own(model, log_probabilities):
    inputs, method = np.array([[3], [40], [3], [12]], np.int32), Sampling(num_results=3)
    ids, scores = sampled(model, method, inputs)
    order = [2, 1]
    some, _ = sampled(model, method, inputs[order], rows=order)
    np.testing.assert_array_equal(some, ids[order])
    assert (ids[0] != ids[2]).any(), "the same input in another place is another draw"
    assert len({tuple(row) for row in ids[[0, 2]].reshape(6, -1).tolist()}) > 4
    fewer, _ = sampled(model, Sampling(num_results=2), inputs)
    np.testing.assert_array_equal(fewer, ids[:, :2])
    again, _ = sampled(model, method, inputs, seed=1)
    assert (again != ids).any()
    for row, state in enumerate(inputs[:, 0]):
        for text, score in zip(ids[row].tolist(), scores[row], strict=True):
            text = text[: text.index(1) + 1] if 1 in text else text
            assert score == pytest.approx(log_probabilities(int(state), text).sum(), abs=1e-4)


def test_sampling_without_a_key(model):
    with pytest.raises(ValueError, match="needs a key"):
        decode(
            *model,
            jnp.zeros((1, 1), jnp.int32),
            method=Sampling(),
            start_ids=jnp.zeros(1, jnp.int32),
            max_length=1,
            eos_id=1,
            pad_id=0,
        )
