from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, RobertaConfig
from t5x_lite.objectives import SpanBoundary, corrupt_rows

MODEL = BertConfig(
    vocab_size=67,
    embed_dim=12,
    num_heads=3,
    mlp_dim=17,
    num_layers=1,
    max_length=40,
    heads=("masked_lm", "span_boundary"),
)


@pytest.fixture(scope="module")
def objective(vocabulary):
    return SpanBoundary(40).for_vocabulary(vocabulary)


@pytest.fixture(scope="module")
def corrupted(objective, make_rows):
    raw = make_rows(objective.layout, 1000)
    features = jax.jit(lambda key, raw: corrupt_rows(objective, key, {"ids": raw}))(jax.random.key(0), jnp.asarray(raw))
    return raw, jax.device_get(features)


def spans_of(positions: np.ndarray) -> list[np.ndarray]:
    """Runs of positions; no two spans are next to each other."""
    return np.split(positions, np.nonzero(np.diff(positions) > 1)[0] + 1) if len(positions) else []


def test_each_token_is_told_by_its_spans_outer_neighbours_and_its_place(objective, corrupted):
    raw, features = corrupted
    vocabulary = objective.vocabulary
    lengths = []
    for row in range(len(raw)):
        used = features["targets"][row] != vocabulary.pad_id
        positions = features["positions"][row, used]
        np.testing.assert_array_equal(features["targets"][row, used], raw[row, positions])
        for span in spans_of(positions):
            lengths.append(len(span))
            places = np.isin(features["positions"][row], span) & used
            left, right = span[0] - 1, span[-1] + 1
            assert (features["left"][row, places] == left).all()
            assert (features["right"][row, places] == right).all()
            assert features["offset"][row, places].tolist() == list(range(len(span)))
            assert not {left, right} & set(positions.tolist())
            np.testing.assert_array_equal(features["inputs"][row, [left, right]], raw[row, [left, right]])
            assert raw[row, right] != vocabulary.pad_id
    assert np.bincount(lengths)[1:5].min() > 50
    for name in ("left", "right"):
        assert (features[name] >= 0).all()
        assert (features[name] < 40).all()


def test_a_span_is_masked_replaced_or_kept_as_a_whole(objective, corrupted):
    """Joshi et al. 2020, section 3.1: the 80 / 10 / 10 of BERT, at the level of spans."""
    raw, features = corrupted
    fates = []
    for row in range(len(raw)):
        positions = features["positions"][row, features["targets"][row] != objective.vocabulary.pad_id]
        for span in (span for span in spans_of(positions) if len(span) > 2):
            seen = features["inputs"][row, span]
            masked, kept = seen == objective.vocabulary.mask_id, seen == raw[row, span]
            assert masked.all() or not masked.any()
            fates.append(0 if masked.all() else 1 if kept.all() else 2)
    assert len(fates) > 300
    assert chisquare(np.bincount(fates, minlength=3), len(fates) * np.array([0.8, 0.1, 0.1])).pvalue > 1e-3


def test_spans_begin_and_end_with_words(objective, corrupted):
    raw, features = corrupted
    continues = objective.vocabulary.continues_word()
    for row in range(len(raw)):
        positions = features["positions"][row, features["targets"][row] != objective.vocabulary.pad_id]
        for span in spans_of(positions):
            before = raw[row, span[0] - 1]
            assert not continues[raw[row, span[0]]] or before in objective.vocabulary.special_ids
            assert not continues[raw[row, span[-1] + 1]]


def test_loss_adds_the_boundary_objective_to_the_masked_language_model(
    objective, corrupted, make_model, say, token_losses
):
    module, params = make_model(MODEL)
    pad_id, rows = objective.vocabulary.pad_id, slice(0, 5)
    features = {name: value[rows] for name, value in corrupted[1].items()}
    features["valid"] = np.array([True, True, False, True, True])
    total, weight, metrics = jax.jit(lambda f: objective.loss(module, params, f, None))(features)

    said = say(module, params, features["inputs"], features["segments"], pad_id)
    tokens = token_losses(said["masked_lm_logits"], features, pad_id)
    # Each place's own neighbours, one by one, on the encoder's output.
    hidden = jnp.asarray(said["hidden"], jnp.float32)
    rows = np.arange(5)[:, None]
    left, right = hidden[rows, features["left"]], hidden[rows, features["right"]]
    boundary = jax.jit(
        lambda *args: module.apply({"params": params}, *args, method="span_boundary_logits"),
    )(left, right, jnp.asarray(features["offset"]))
    everywhere = np.zeros((5, 40, 67))
    used = features["targets"] != pad_id
    for row, place in zip(*np.nonzero(used), strict=True):
        everywhere[row, features["positions"][row, place]] = boundary[row, place]
    neighbours = token_losses(everywhere, features, pad_id)
    assert weight == len(tokens) == len(neighbours) > 8
    assert total / weight == pytest.approx(tokens.mean() + neighbours.mean(), rel=1e-5)
    assert metrics["loss"] == pytest.approx(tokens.sum(), rel=1e-5)
    assert metrics["boundary_loss"].sum == pytest.approx(neighbours.sum(), rel=1e-5)
    valid = used & features["valid"][:, None]
    correct = (np.asarray(boundary).argmax(-1) == features["targets"]) & valid
    assert metrics["boundary_accuracy"].sum == correct.sum()
    assert metrics["boundary_accuracy"].weight == weight


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"span_probability": 0.0}, "span_probability=0.0"),
        ({"span_probability": float("nan")}, "span_probability=nan"),
        ({"longest_span": 0}, "longest_span=0"),
    ],
)
def test_fields_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        SpanBoundary(**change)


def test_models_without_the_head():
    with pytest.raises(InputError, match="lacks span_boundary, which SpanBoundary trains"):
        SpanBoundary(40).check_model(replace(MODEL, heads=("masked_lm",)))
    with pytest.raises(InputError, match="lacks span_boundary"):
        SpanBoundary(40).check_model(RobertaConfig(heads=("masked_lm",)))
