import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from t5x_lite.data import Bytes, Data, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, ElectraConfig, ElectraPairConfig, T5Config
from t5x_lite.objectives import MaskedLanguageModel, SpanBoundary, SpanCorruption, corrupt_rows
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.training import Experiment
from t5x_lite.training.step import Program

from ..slow import mostly_slow

MODEL = BertConfig(
    vocab_size=67,
    embed_dim=12,
    num_heads=3,
    mlp_dim=17,
    num_layers=2,
    max_length=40,
    dropout_rate=0.2,
    attention_dropout_rate=0.2,
    heads=("masked_lm",),
)
OBJECTIVES = {
    "full-sentences": MaskedLanguageModel(32),
    "doc-sentences, whole words": MaskedLanguageModel(24, input_format="doc-sentences", whole_words=True),
    "segment-pair": MaskedLanguageModel(29, input_format="segment-pair", mask_rate=0.3),
    "sentence-pair": MaskedLanguageModel(23, input_format="sentence-pair", static_masks=3),
}


def corrupt(objective, raw, seed=0):
    features = jax.jit(lambda key, raw: corrupt_rows(objective, key, {"ids": raw}))(
        jax.random.key(seed), jnp.asarray(raw)
    )
    return jax.device_get(features)


@pytest.fixture(scope="module", params=mostly_slow(OBJECTIVES, "full-sentences", "segment-pair"))
def corrupted(request, vocabulary, make_rows):
    """(objective, raw, features)"""
    objective = OBJECTIVES[request.param].for_vocabulary(vocabulary)
    raw = make_rows(objective.layout)
    return objective, raw, corrupt(objective, raw)


def test_putting_the_targets_back_gives_the_raw_row(corrupted):
    objective, raw, features = corrupted
    vocabulary = objective.vocabulary
    assert features["positions"].shape == features["targets"].shape == (len(raw), objective.num_predictions)
    asked = features["targets"] != vocabulary.pad_id
    ids = (raw != vocabulary.pad_id).sum(1)
    assert len(set(ids.tolist())) > 3
    budget = np.maximum(1, np.round(objective.mask_rate * ids))
    text = (~np.isin(raw, vocabulary.special_ids)).sum(1)
    if objective.whole_words:
        assert (asked.sum(1) <= budget).all()
    else:
        np.testing.assert_array_equal(asked.sum(1), np.minimum(budget, text))
    rebuilt = features["inputs"].copy()
    for row in range(len(raw)):
        positions, targets = features["positions"][row, asked[row]], features["targets"][row, asked[row]]
        assert (np.diff(positions) > 0).all()
        assert not np.isin(targets, vocabulary.special_ids).any()
        rebuilt[row, positions] = targets
    np.testing.assert_array_equal(rebuilt, raw)
    seen = np.take_along_axis(features["inputs"], features["positions"], 1)[asked]
    assert 0.75 < (seen == vocabulary.mask_id).mean() < 0.85


def test_segments_of_pairs_and_of_rows_without(corrupted):
    objective, raw, features = corrupted
    for row, segments in zip(raw, features["segments"], strict=True):
        expected, segment = [], 0
        for token in row.tolist():
            expected.append(0 if token == objective.vocabulary.pad_id else segment)
            if objective.is_pair and token == objective.vocabulary.sep_id:
                segment = 1
        assert segments.tolist() == expected
    assert objective.is_pair == bool(features["segments"].any())


def test_jit_and_vmap_equal_row_by_row(corrupted):
    objective, raw, features = corrupted
    one = jax.jit(objective.corrupt)
    for row in range(4):
        alone = one(jax.random.fold_in(jax.random.key(0), row), {"ids": jnp.asarray(raw[row])})
        jax.tree.map(lambda a, t, row=row: np.testing.assert_array_equal(a, t[row]), alone, dict(features))


def masks_of(objective, row, seed) -> set[tuple[int, ...]]:
    """The inputs that a row is seen as under 400 keys."""
    keys = jax.random.split(jax.random.key(seed), 400)
    rows = jax.jit(jax.vmap(objective.corrupt, (0, None)))(keys, {"ids": jnp.asarray(row)})["inputs"]
    return set(map(tuple, np.asarray(rows).tolist()))


def test_static_masks_are_so_many_and_always_the_same(vocabulary, make_rows):
    """Ten copies of the data as BERT had, against masks that are new each time (Liu et al. 2019, section 4.1)."""
    static = MaskedLanguageModel(32, static_masks=10).for_vocabulary(vocabulary)
    dynamic = replace(static, static_masks=0)
    full, other = make_rows(static.layout)[:2]
    masks = masks_of(static, full, seed=0)
    assert len(masks) == 10
    assert masks_of(static, full, seed=1) == masks
    assert len(masks_of(dynamic, full, seed=0)) > 350
    # Another row has masks of its own, not the same places again.
    others = masks_of(static, other, seed=0)
    assert len(others) == 10
    places = [{tuple(mask != row) for mask in map(np.array, seen)} for row, seen in ((full, masks), (other, others))]
    assert len(places[0] & places[1]) < 3


@pytest.fixture(scope="module")
def asked(vocabulary, make_rows, make_model):
    """(objective, module, params, features) of four rows, the last but one not valid."""
    objective = MaskedLanguageModel(29, input_format="segment-pair").for_vocabulary(vocabulary)
    features = corrupt(objective, make_rows(objective.layout, 4))
    return objective, *make_model(MODEL), features | {"valid": np.array([True, True, False, True])}


@pytest.fixture(scope="module")
def loss(asked):
    objective, module, params, _ = asked
    return jax.jit(lambda features: objective.loss(module, params, features, None))


def test_loss_is_the_models_at_the_positions_asked_for(asked, loss, say, token_losses):
    objective, module, params, features = asked
    pad_id = objective.vocabulary.pad_id
    assert (features["inputs"][0] == pad_id).any()
    logits = say(module, params, features["inputs"], features["segments"], pad_id)["masked_lm_logits"]
    expected = token_losses(logits, features, pad_id)
    total, weight, metrics = loss(features)
    assert weight == len(expected)
    assert total == pytest.approx(expected.sum(), rel=1e-5)
    assert metrics["loss"] == total

    predicted = np.asarray(jax.jit(lambda features: objective.predict(module, params, features))(features))
    used = features["targets"] != pad_id
    best = np.take_along_axis(logits.argmax(-1), features["positions"], 1)
    np.testing.assert_array_equal(predicted, np.where(used, best, pad_id))
    correct = (predicted == features["targets"]) & used & features["valid"][:, None]
    assert metrics["accuracy"] == correct.sum()
    # ... which counts, where the model is right.
    truthful = features | {"targets": np.where(used, best, pad_id)}
    assert loss(truthful)[2]["accuracy"] == weight


def test_rows_that_are_not_valid_count_for_nothing(asked, loss):
    objective, _, _, features = asked
    before = loss(features)
    filling = np.zeros_like(features["inputs"][:1])
    other = {name: value.copy() for name, value in features.items()}
    other["inputs"][2], other["segments"][2], other["positions"][2], other["targets"][2] = 5, 1, 3, 9
    jax.tree.map(np.testing.assert_array_equal, loss(other), before)
    # The last batch of an evaluation is filled up with zeros, or in this vocabulary with rows of padding alone.
    for value in (0, objective.vocabulary.pad_id):
        row = corrupt(objective, filling + value)
        other = {name: np.concatenate([features[name][:2], part, features[name][3:]]) for name, part in row.items()}
        after = loss(other | {"valid": features["valid"]})
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), after, before)


def test_dropout_needs_a_key_and_follows_it(asked):
    objective, module, params, features = asked
    loss = jax.jit(lambda key: objective.loss(module, params, jax.tree.map(jnp.asarray, features), key)[0])
    assert float(loss(jax.random.key(0))) == float(loss(jax.random.key(0))) != float(loss(jax.random.key(1)))
    assert float(loss(jax.random.key(0))) != float(loss(None))


def largest_array(text: str) -> int:
    """Elements of the largest array in a compiled program."""
    shapes = re.findall(r"\b[a-z]+\d+\[([\d,]+)\]", text)
    return max(int(np.prod([int(size) for size in shape.split(",")])) for shape in shapes)


def test_the_whole_batch_never_meets_the_vocabulary(vocabulary):
    """A train step makes no B x L x V: only the positions asked for are scored."""
    rows, length, size = 8, 56, 5003
    model = replace(MODEL, vocab_size=size, max_length=length, dropout_rate=0.0, attention_dropout_rate=0.0)
    experiment = Experiment(
        model=model,
        objective=MaskedLanguageModel(length),
        data=Data(tokenizer=Bytes()),
        optimizer=AdamW(Constant(1e-3)),
        steps=1,
        batch_size=rows,
    )
    program = Program(
        experiment, experiment.objective.for_vocabulary(vocabulary), make_mesh(MeshShape(), jax.devices()[:1])
    )
    raw = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    step = program.train_step.lower(program.abstract_state, {"ids": raw}).compile()
    predictions = round(0.15 * length)
    assert largest_array(step.as_text()) == rows * predictions * size
    assert step.memory_analysis().temp_size_in_bytes < 4 * rows * length * size

    # What the same reading finds where every position is scored.
    params = program.abstract_state.params
    every = jax.jit(lambda params, ids: program.module.apply({"params": params}, ids)["masked_lm_logits"])
    assert largest_array(every.lower(params, raw).compile().as_text()) == rows * length * size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask_rate": 0.0}, "mask_rate=0.0"),
        ({"mask_rate": float("nan")}, "mask_rate=nan"),
        ({"mask_share": 1.5}, r"mask_share=1.5 is not in \[0, 1\]"),
        ({"random_share": -0.1}, "random_share=-0.1"),
        ({"mask_share": 0.9, "random_share": 0.2}, "mask_share=0.9 and random_share=0.2 exceed 1"),
        ({"static_masks": -1}, "static_masks=-1"),
        ({"input_length": 7}, "input_length=7"),
    ],
)
def test_fields_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        MaskedLanguageModel(**change)


def test_an_unknown_format(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its answer would come first
    with pytest.raises(InputError, match="input_format='paragraphs' is unknown; choose segment-pair"):
        MaskedLanguageModel(input_format="paragraphs")


@pytest.mark.parametrize("role", ["mask", "cls", "sep"])
def test_a_tokenizer_without_the_special_tokens(vocabulary, role):
    with pytest.raises(InputError, match=f"no {role} token, which MaskedLanguageModel needs; use WordPiece"):
        MaskedLanguageModel().for_vocabulary(replace(vocabulary, **{f"{role}_id": None}))


def test_whole_words_of_a_tokenizer_that_marks_none(vocabulary):
    marks_none = replace(vocabulary, continuations=b"")
    assert MaskedLanguageModel().for_vocabulary(marks_none).vocabulary == marks_none
    with pytest.raises(InputError, match="whole_words=True needs a tokenizer that marks words"):
        MaskedLanguageModel(whole_words=True).for_vocabulary(marks_none)


ELECTRA = ElectraConfig(
    vocab_size=67, embed_dim=12, token_embed_dim=12, num_heads=3, mlp_dim=17, num_layers=1, heads=("masked_lm",)
)


@pytest.mark.parametrize(
    ("objective", "model", "message"),
    [
        (MaskedLanguageModel(32), replace(MODEL, heads=()), r"model.heads=\(\) lacks masked_lm.*to \('masked_lm',\)"),
        (
            SpanBoundary(32),
            MODEL,
            r"\('masked_lm',\) lacks span_boundary, which SpanBoundary trains; set .*\('masked_lm', 'span_boundary'\)",
        ),
        (MaskedLanguageModel(41), MODEL, "input_length=41 exceeds model.max_length=40"),
        (MaskedLanguageModel(32), T5Config(), "model is a T5Config, which MaskedLanguageModel cannot train"),
        (
            MaskedLanguageModel(32),
            ElectraPairConfig(ELECTRA, replace(ELECTRA, heads=("replaced_token",))),
            "model is a ElectraPairConfig, which MaskedLanguageModel cannot train",
        ),
        (SpanCorruption(32), MODEL, "model is a BertConfig, an encoder; SpanCorruption trains an encoder-decoder"),
    ],
)
def test_models_that_do_not_go_with_the_objective(objective, model, message):
    with pytest.raises(InputError, match=message):
        objective.check_model(model)


def test_an_experiment_asks_its_objective(tmp_path):
    with pytest.raises(InputError, match="lacks masked_lm"):
        Experiment(
            model=replace(MODEL, heads=()),
            objective=MaskedLanguageModel(32),
            data=Data(tokenizer=Bytes()),
            optimizer=AdamW(Constant(1e-3)),
            steps=1,
            batch_size=1,
        )
    MaskedLanguageModel(40).check_model(MODEL)
    SpanCorruption(32).check_model(T5Config())


def test_rows_of_another_length_and_an_unknown_vocabulary(vocabulary):
    objective = MaskedLanguageModel(12)
    with pytest.raises(ValueError, match=r"columns \{'ids': \(13,\)\}; MaskedLanguageModel takes \{'ids': \(12,\)\}"):
        objective.for_vocabulary(vocabulary).corrupt(jax.random.key(0), {"ids": jnp.arange(13)})
    with pytest.raises(ValueError, match="for_vocabulary"):
        objective.corrupt(jax.random.key(0), {"ids": jnp.arange(12)})
    ids = {"mask_id": 60, "cls_id": 59, "sep_id": 58}
    assert objective.for_vocabulary(Vocabulary(61, **ids)).vocabulary.mask_id == 60
    for role in ids:
        with pytest.raises(
            InputError, match=f"no {role.removesuffix('_id')} token, which MaskedLanguageModel needs; use"
        ):
            objective.for_vocabulary(Vocabulary(61, **ids | {role: None}))
