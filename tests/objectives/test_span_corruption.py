import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.objectives import SpanCorruption, corrupt_rows
from t5x_lite.objectives.span_corruption import random_segmentation, replace_spans

from ..slow import mostly_slow

EOS = 1


def vocabulary(size, sentinels):
    return Vocabulary(size, 0, EOS, 2, first_sentinel_id=size - 1, num_sentinels=sentinels)


def paper_lengths(inputs_length, noise_density, mean_span_length):
    """(raw length, targets length, noise, spans) by the rule of the T5 paper's code (`random_spans_helper`)."""

    def lengths(tokens):
        noise = round(tokens * noise_density)
        spans = round(noise / mean_span_length)
        return tokens - noise + spans + 1, noise + spans + 1, noise, spans

    tokens = inputs_length
    while lengths(tokens + 1)[0] <= inputs_length:
        tokens += 1
    if noise_density == 0.5 and lengths(tokens)[1] > inputs_length:
        return tokens - 1, lengths(tokens)[1] - 1, *lengths(tokens - 1)[2:]
    return tokens, *lengths(tokens)[1:]


def test_lengths_of_the_paper():
    objective = SpanCorruption(input_length=512, noise_density=0.15, mean_span_length=3.0)
    assert (objective.raw_length, objective.target_length) == (568, 114)


@pytest.mark.parametrize("input_length", [64, 100, 512, 1024, 1025])
@pytest.mark.parametrize("noise_density", [0.15, 0.3, 0.5])
@pytest.mark.parametrize("mean_span_length", [2.0, 3.0, 10.0, 20.0])
def test_lengths_follow_the_rule_of_the_papers_code(input_length, noise_density, mean_span_length):
    objective = SpanCorruption(
        input_length=input_length, noise_density=noise_density, mean_span_length=mean_span_length
    )
    expected = paper_lengths(input_length, noise_density, mean_span_length)
    got = (objective.raw_length, objective.target_length, objective.num_noise_tokens, objective.num_noise_spans)
    assert got == expected


@pytest.mark.parametrize("input_length", [65, 101])
@pytest.mark.parametrize("noise_density", [0.15, 0.5])
def test_spans_of_one_id_leave_the_length_but_for_eos(input_length, noise_density):
    # Each noise id becomes one sentinel. The paper's code would begin its search above this length.
    objective = SpanCorruption(input_length=input_length, noise_density=noise_density, mean_span_length=1.0)
    assert objective.raw_length == input_length - 1
    assert objective.num_noise_tokens == objective.num_noise_spans == round((input_length - 1) * noise_density)


CASES = {
    "T5": SpanCorruption(input_length=512),
    "ByT5": SpanCorruption(input_length=512, mean_span_length=20.0),
    "dense": SpanCorruption(input_length=61, noise_density=0.5, mean_span_length=1.0),
    "short": SpanCorruption(input_length=6),
    "half": SpanCorruption(input_length=96, noise_density=0.5),
    "mostly noise": SpanCorruption(input_length=17, noise_density=0.8, mean_span_length=2.0),
}


@pytest.fixture(scope="module", params=mostly_slow(CASES, "T5", "dense", "mostly noise"))
def rows(request):
    """(objective, raw, inputs, targets) of 1,000 rows whose raw ids are all different."""
    objective = CASES[request.param]
    size = objective.raw_length + 10 + 200
    objective = objective.for_vocabulary(vocabulary(size, 200))
    raw = np.random.default_rng(0).permuted(
        np.tile(np.arange(3, 3 + objective.raw_length, dtype=np.int32), (1000, 1)), axis=1
    )
    features = jax.jit(lambda key, raw: corrupt_rows(objective, key, {"ids": raw}))(jax.random.key(0), jnp.asarray(raw))
    return objective, raw, np.asarray(features["inputs"]), np.asarray(features["targets"])


def test_shapes_and_exact_counts(rows):
    objective, raw, inputs, targets = rows
    first_sentinel = objective.vocabulary.first_sentinel_id
    assert inputs.shape == (1000, objective.input_length)
    assert targets.shape == (1000, objective.target_length)
    for side in (inputs, targets):
        assert (side[:, -1] == EOS).all()
        assert ((side == EOS).sum(1) == 1).all()
        assert (side != 0).all()  # filled exactly
        sentinels = side > raw.max()
        assert (sentinels.sum(1) == objective.num_noise_spans).all()
        assert (side[sentinels].reshape(1000, -1) == first_sentinel - np.arange(objective.num_noise_spans)).all()
    assert (targets[:, 0] == first_sentinel).all()
    assert ((targets <= raw.max()).sum(1) - 1 == objective.num_noise_tokens).all()


def test_every_raw_id_is_on_one_side_in_order(rows):
    """Putting the spans of the target back in place of the sentinels of the input gives the raw row."""
    _, raw, inputs, targets = rows
    top = raw.max()
    for row, source, target in zip(raw.tolist(), inputs.tolist(), targets.tolist(), strict=True):
        spans, current = {}, None
        for token in target[:-1]:
            if token > top:
                current = spans.setdefault(token, [])
            else:
                current.append(token)
        assert all(spans.values())
        restored = []
        for token in source[:-1]:
            restored += spans.pop(token) if token > top else [token]
        assert restored == row
        assert not spans


def test_half_of_the_ids_as_noise_may_leave_a_padding_id():
    objective = SpanCorruption(input_length=27, noise_density=0.5).for_vocabulary(vocabulary(100, 20))
    assert (objective.raw_length, objective.target_length, objective.pads_inputs) == (38, 27, True)
    raw = {"ids": jnp.arange(3, 41, dtype=jnp.int32)}
    for side in objective.corrupt(jax.random.key(0), raw).values():
        assert side[-2:].tolist() == [EOS, 0]
        assert (side[:-2] > EOS).all()


def test_rows_begin_with_text_and_end_with_noise(rows):
    _, raw, inputs, targets = rows
    np.testing.assert_array_equal(inputs[:, 0], raw[:, 0])
    np.testing.assert_array_equal(targets[:, -2], raw[:, -1])


@pytest.fixture(scope="module")
def small():
    return SpanCorruption(input_length=14, noise_density=0.4, mean_span_length=2.0).for_vocabulary(vocabulary(99, 20))


def test_jit_and_vmap_equal_row_by_row(small):
    raw = jnp.arange(3, 3 + 4 * small.raw_length).reshape(4, -1) % 70 + 3
    key = jax.random.key(5)
    jitted = jax.jit(lambda key, raw, first: corrupt_rows(small, key, {"ids": raw}, first))(key, raw, 10)
    one = jax.jit(lambda key, row, ids: small.corrupt(jax.random.fold_in(key, row), {"ids": ids}))
    single = [one(key, 10 + row, raw[row]) for row in range(4)]
    for name in ("inputs", "targets"):
        np.testing.assert_array_equal(jitted[name], np.stack([features[name] for features in single]))


def test_the_key_decides(small):
    raw = jnp.arange(3, 3 + small.raw_length)
    corrupt = jax.jit(small.corrupt)
    outcomes = {tuple(corrupt(jax.random.key(seed), {"ids": raw})["inputs"].tolist()) for seed in range(20)}
    assert len(outcomes) > 10
    assert tuple(corrupt(jax.random.key(3), {"ids": raw})["inputs"].tolist()) in outcomes


def compositions(items, segments):
    return [
        tuple(np.diff([0, *cuts, items]).tolist()) for cuts in itertools.combinations(range(1, items), segments - 1)
    ]


@pytest.mark.parametrize(("items", "segments"), [(7, 3), (6, 2), (5, 4)])
def test_all_segmentations_are_equally_likely(items, segments):
    keys = jax.random.split(jax.random.key(0), 6000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: random_segmentation(key, items, segments)))(keys))
    counts = Counter(map(tuple, drawn.tolist()))
    possible = compositions(items, segments)
    assert set(counts) == set(possible)
    assert chisquare([counts[lengths] for lengths in possible]).pvalue > 1e-3


@pytest.mark.parametrize(("items", "segments"), [(5, 5), (4, 1), (1, 1)])
def test_segmentations_without_a_choice(items, segments):
    (expected,) = compositions(items, segments)
    assert tuple(random_segmentation(jax.random.key(0), items, segments).tolist()) == expected


def test_all_noise_masks_are_equally_likely(small):
    noise, spans = small.num_noise_tokens, small.num_noise_spans
    possible = list(itertools.product(compositions(small.raw_length - noise, spans), compositions(noise, spans)))
    assert 20 < len(possible) < 500
    keys = jax.random.split(jax.random.key(1), 40 * len(possible))
    masks = np.asarray(jax.jit(jax.vmap(small.noise_mask))(keys))

    def lengths(mask):
        runs = [len(list(run)) for _, run in itertools.groupby(mask)]
        return tuple(runs[0::2]), tuple(runs[1::2])

    counts = Counter(map(lengths, masks.tolist()))
    assert set(counts) <= set(possible)
    assert chisquare([counts[outcome] for outcome in possible]).pvalue > 1e-3


def render(ids, words):
    return " ".join(words[i - 10] if i < 10 + len(words) else f"<{99 - i}>" for i in ids.tolist())


@pytest.mark.parametrize(
    ("noise", "inputs", "targets"),
    [
        # The paper's figure 2.
        ("for inviting last", "Thank you <0> me to your party <1> week .", "<0> for inviting <1> last <2>"),
        # As in the paper's code, a target that begins with noise has no sentinel before it.
        ("Thank you week .", "<0> for inviting me to your party last <1>", "Thank you <0> week ."),
        ("Thank", "<0> you for inviting me to your party last week .", "Thank <0>"),
        ("you inviting .", "Thank <0> for <1> me to your party last week <2>", "<0> you <1> inviting <2> ."),
    ],
)
def test_worked_examples(noise, inputs, targets):
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
    mask = jnp.array([word in noise.split() for word in words])
    lengths = len(inputs.split()) + 1, len(targets.split()) + 1
    for spare in (0, 3):
        got = replace_spans(jnp.arange(10, 21), mask, vocabulary(100, 10), lengths[0] + spare, lengths[1] + spare)
        for ids, expected, length in zip(got, (inputs, targets), lengths, strict=True):
            assert render(ids[: length - 1], words) == expected
            assert ids[length - 1 :].tolist() == [EOS] + [0] * spare


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_density": 0.0}, "noise_density=0.0"),
        ({"noise_density": 1.0}, "noise_density=1.0"),
        ({"noise_density": float("nan")}, "noise_density=nan"),
        ({"mean_span_length": 0.5}, "mean_span_length=0.5"),
        ({"mean_span_length": float("nan")}, "mean_span_length=nan"),
        ({"input_length": 3}, "input_length=3"),
        ({"input_length": 16, "noise_density": 0.8, "mean_span_length": 2.0}, "input_length=16 .*choose 15"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ({"label_smoothing": -0.1}, "label_smoothing=-0.1"),
        ({"z_loss": -1e-4}, "z_loss=-0.0001"),
        ({"z_loss": float("nan")}, "z_loss=nan"),
    ],
)
def test_fields_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        SpanCorruption(**change)


def test_more_spans_than_sentinels():
    objective = SpanCorruption(input_length=512)
    assert objective.for_vocabulary(vocabulary(1000, 28)).vocabulary.num_sentinels == 28
    with pytest.raises(InputError, match="input_length=512 makes 28 noise spans .* 27 sentinels"):
        objective.for_vocabulary(vocabulary(1000, 27))


def test_rows_of_another_length_and_an_unknown_vocabulary(small):
    with pytest.raises(ValueError, match=rf"SpanCorruption takes .*{small.raw_length},"):
        small.corrupt(jax.random.key(0), {"ids": jnp.arange(small.raw_length + 1)})
    with pytest.raises(ValueError, match="for_vocabulary"):
        unknown = SpanCorruption(input_length=8)
        unknown.corrupt(jax.random.key(0), {"ids": jnp.arange(unknown.raw_length)})


def test_loss_and_predictions_are_the_models(t5, t5_logits):
    module, params = t5
    objective = SpanCorruption(input_length=14, label_smoothing=0.1, z_loss=0.01).for_vocabulary(vocabulary(384, 20))
    raw = np.arange(3, 3 + 2 * objective.raw_length).reshape(2, -1)
    features = jax.jit(lambda raw: corrupt_rows(objective, jax.random.key(0), {"ids": raw}))(raw)
    valid = jnp.array([True, False])
    total, weight, metrics = jax.jit(lambda f: objective.loss(module, params, f, None))(features | {"valid": valid})
    targets = np.asarray(features["targets"])
    decoder_inputs = np.concatenate([np.zeros((2, 1), np.int32), targets[:, :-1]], axis=1)
    logits = np.asarray(t5_logits(features["inputs"], decoder_inputs, np.ones((2, 14), bool)), np.float64)[0]
    log_z = np.log(np.exp(logits).sum(-1))
    likelihood = log_z - logits[np.arange(len(logits)), targets[0]]
    assert weight == objective.target_length
    assert metrics["loss"] == pytest.approx(likelihood.sum(), rel=1e-4)
    expected = 0.9 * likelihood + 0.1 * (log_z - logits.mean(-1)) + 0.01 * log_z**2
    assert total == pytest.approx(expected.sum(), rel=1e-4)

    predicted = objective.predict(module, params, features)
    assert predicted.shape == targets.shape
    np.testing.assert_array_equal(predicted[0, 0], logits[0].argmax())
