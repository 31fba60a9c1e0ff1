"""Hugging Face's XLNet as the oracle: both streams, memory, segments and heads, import and export."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import PRESETS, XLNetConfig, num_params
from t5x_lite.objectives import PermutationLanguageModel, corrupt_rows
from t5x_lite.objectives.vocabulary_loss import vocabulary_loss

from ..programs import like_new

torch = pytest.importorskip("torch", reason="torch is the oracle")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

SIZES = {"vocab_size": 60, "d_model": 12, "n_layer": 3, "n_head": 3, "d_inner": 17, "dropout": 0.2, "mem_len": 9}


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)


CASES = {
    "model": Case("XLNetModel", {"clamp_len": 4}, {"heads": (), "clamp_length": 4, "dropout_rate": 0.2}),
    "lm": Case("XLNetLMHeadModel", {"ff_activation": "relu"}, {"heads": ("permutation_lm",), "activation": "relu"}),
    "classification": Case(
        "XLNetForSequenceClassification",
        {"num_labels": 5, "summary_last_dropout": 0.3},
        {"heads": ("classification",), "num_classes": 5, "head_dropout_rate": 0.3},
    ),
    "multiple_choice": Case("XLNetForMultipleChoice", {}, {"heads": ("multiple_choice",)}),
    "tagging": Case("XLNetForTokenClassification", {"num_labels": 4}, {"heads": ("tagging",), "num_classes": 4}),
    "question_answering": Case("XLNetForQuestionAnsweringSimple", {}, {"heads": ("question_answering",)}),
}
RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(9, 60, (3, 7))
SEGMENTS = np.array([[0, 0, 0, 0, 0, 0, 2], [0, 0, 0, 1, 1, 1, 2], [0, 0, 1, 1, 2, 0, 0]])
VALID = np.array([[0, 0, 1, 1, 1, 1, 1], [1] * 7, [1, 1, 1, 1, 1, 0, 0]], bool)


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    """(the case, the oracle, our config, module and parameters)."""
    case, folder = CASES[request.param], tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    model = getattr(transformers, case.name)(transformers.XLNetConfig(**SIZES | case.options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    model.save_pretrained(folder)
    imported = import_folder(folder)
    return case, model, imported.config, imported.config.build(), jax.device_put(imported.params)


def tensors(*arrays):
    return [torch.tensor(np.asarray(array)) for array in arrays]


def test_config(pair):
    case, _, config, _, params = pair
    assert isinstance(config, XLNetConfig)
    for name, value in case.expected.items():
        assert getattr(config, name) == value, name
    shapes = jax.tree.map(jnp.shape, like_new(config))
    assert shapes == jax.tree.map(jnp.shape, params)


@pytest.mark.parametrize(("name", "count"), [("xlnet-base-cased", 116_750_336), ("xlnet-large-cased", 360_300_800)])
def test_published_counts(name, count):
    assert num_params(replace(PRESETS[name], heads=("permutation_lm",))) == count


def outputs_of(case, model, config, module, params, ids, segments, valid):
    """(theirs, ours) of whole rows."""
    given = dict(
        zip(("input_ids", "token_type_ids", "attention_mask"), tensors(ids, segments, valid * 1.0), strict=True)
    )
    if case.name == "XLNetForMultipleChoice":
        given = {name: value[None] for name, value in given.items()}
    theirs = model(**given)
    arrays = (jnp.asarray(ids, jnp.int32), jnp.asarray(segments, jnp.int32))
    ours = module.apply({"params": params}, *arrays, inputs_valid=jnp.asarray(valid, bool))
    head = config.heads[0] if config.heads else ""
    if head == "question_answering":
        theirs = torch.stack([theirs.start_logits, theirs.end_logits], dim=-1)
    elif head == "multiple_choice":
        theirs = theirs.logits[0]
    else:
        theirs = theirs.logits if head else theirs.last_hidden_state
    return theirs.detach().numpy(), np.asarray(ours[f"{head}_logits" if head else "hidden"])


def test_logits_with_padding_on_either_side(pair):
    theirs, ours = outputs_of(*pair, IDS, SEGMENTS, VALID)
    kept = VALID if ours.ndim > 1 and ours.shape[:2] == VALID.shape else slice(None)
    if pair[2].heads in (("classification",), ("multiple_choice",)):
        # Theirs reads the last position, ours the last one that is not padding.
        kept = slice(0, 2)
    np.testing.assert_allclose(ours[kept], theirs[kept], atol=1e-4)


def test_export_is_read_by_transformers(pair, tmp_path):
    case, model, config, _, params = pair
    export_folder(tmp_path, config, params, None)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [case.name]
    again = getattr(transformers, case.name).from_pretrained(tmp_path).eval()
    state, expected = again.state_dict(), model.state_dict()
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value)


@pytest.fixture(scope="module")
def rows():
    """Features of rows with two segments after a reused part."""
    vocabulary = Vocabulary(60, pad_id=5, unk_id=0, cls_id=3, sep_id=4, mask_id=6, eos_id=7, cls_last=True)
    objective = PermutationLanguageModel(24, 10, prediction_rate=0.25, both_ways=False).for_vocabulary(vocabulary)
    batch = {"ids": RANDOM.integers(9, 60, (2, 21)), "other": RANDOM.integers(9, 60, (2, 11))}
    return corrupt_rows(objective, jax.random.key(0), batch)


@pytest.mark.parametrize("with_memory", [False, True])
def test_permutation_and_targets_are_their_perm_mask_and_target_mapping(pair, rows, with_memory):
    case, model, _, module, params = pair
    if case.name != "XLNetLMHeadModel":
        pytest.skip("the class without the output has neither")
    features = rows
    order, positions = np.asarray(features["order"]), np.asarray(features["positions"])
    perm_mask = ~(order[:, None, :] < (order + (order % 2 == 0))[:, :, None])
    mapping = np.eye(24)[positions]
    ids, segments, targets = tensors(*(np.asarray(features[n]).astype(int) for n in ("inputs", "segments", "targets")))
    masks = dict(zip(("perm_mask", "target_mapping"), tensors(perm_mask, mapping), strict=True))
    masks = {name: mask.float() for name, mask in masks.items()}
    memory, mems = None, None
    if with_memory:
        hidden = RANDOM.normal(size=(2, 3, 9, 12)).astype(np.float32)
        memory = {"hidden": jnp.asarray(hidden), "length": jnp.full(2, 9)}
        mems = [tensor.transpose(0, 1) for tensor in torch.tensor(hidden).unbind(dim=1)]
    model.transformer.reuse_len = 10
    theirs = model(ids, token_type_ids=segments, mems=mems, use_mems=True, **masks)
    loss = torch.nn.functional.cross_entropy(theirs.logits.flatten(0, 1), targets.flatten(), reduction="sum")
    model.zero_grad()
    loss.backward()

    def ours(params):
        scores, after = module.apply(
            {"params": params},
            *(features[name] for name in ("inputs", "segments", "order", "positions")),
            memory=memory,
            remembered_length=10,
            method="predictions",
        )
        total, _, _ = vocabulary_loss(scores, features["targets"], jnp.ones(positions.shape))
        return total, (scores.dense(), after)

    (value, (logits, after)), gradients = jax.value_and_grad(ours, has_aux=True)(params)
    np.testing.assert_allclose(logits, theirs.logits.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
    norm = np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(gradients)))
    their_norm = np.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None))
    np.testing.assert_allclose(norm, their_norm, rtol=1e-4)
    if with_memory:
        expected = np.stack([mem.transpose(0, 1).detach().numpy() for mem in theirs.mems], axis=1)
        np.testing.assert_allclose(after["hidden"], expected, atol=1e-4)


@pytest.mark.parametrize("fields", [{"attn_type": "uni"}, {"bi_data": True}, {"summary_type": "mean", "num_labels": 3}])
def test_what_ours_does_not_have_is_refused(fields, tmp_path):
    kind = "XLNetForSequenceClassification" if "num_labels" in fields else "XLNetModel"
    getattr(transformers, kind)(transformers.XLNetConfig(**SIZES | fields)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="in config.json is not one that we have"):
        import_folder(tmp_path)


@pytest.mark.parametrize("value", ["far", True, [4]])
def test_a_distance_that_is_no_number_is_damage(value, tmp_path):
    transformers.XLNetModel(transformers.XLNetConfig(**SIZES)).save_pretrained(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(described | {"clamp_len": value}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": 5}))
    with pytest.raises(InputError, match="clamp_len=.* in config.json is not a number; the file is damaged"):
        import_folder(tmp_path)
