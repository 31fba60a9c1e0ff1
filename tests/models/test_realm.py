"""REALM's networks: their sizes, rows of a question and a passage, and Transformers 4.57, the last that has them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.kernels.masks import MASKED_LOGIT
from t5x_lite.models import PRESETS, BertConfig, RealmConfig, num_params
from t5x_lite.models.realm import Joint, join
from t5x_lite.objectives.masked_language_model import gather_positions
from t5x_lite.objectives.retrieval import marginal_likelihood
from t5x_lite.runs.open_model import open_model

from ..programs import like_new

BERT = BertConfig(
    vocab_size=60, embed_dim=12, num_heads=3, mlp_dim=17, num_layers=2, max_length=40, activation="gelu_tanh"
)
VOCABULARY = Vocabulary(60, pad_id=0, cls_id=2, sep_id=3, mask_id=4, eos_id=3)
LM_HEAD = 768 * 768 + 768 + 2 * 768 + 768 * 30_522 + 30_522
"""Parameters of a head that the released embedder and reader have, untied, and that nothing reads."""


def test_the_published_sizes():
    embedder, pretraining, reader = (num_params(PRESETS[f"realm{name}"]) for name in ("-embedder", "", "-reader"))
    assert embedder == 133_644_474 - LM_HEAD
    assert pretraining == 2 * embedder + 110_104_890
    assert reader == 2 * embedder + 133_940_283 - LM_HEAD


@pytest.mark.slow
def test_a_shared_encoder_is_one():
    two, one = RealmConfig(BERT), RealmConfig(BERT, shared=True)
    assert num_params(two) == 2 * num_params(one)
    params, ids = like_new(one), jnp.array([[2, 9, 3]])
    options = {
        name: one.build().apply({"params": params}, ids, method=f"embed_{name}") for name in ("questions", "passages")
    }
    np.testing.assert_array_equal(options["questions"], options["passages"])
    assert options["questions"].shape == (1, 128)


def test_rows_of_a_question_and_a_passage():
    questions, passages = jnp.array([[2, 10, 11, 3], [2, 12, 3, 0]]), jnp.array([[20, 21, 22], [0, 0, 0]])
    joint = join(questions, passages, VOCABULARY)
    assert joint.ids.tolist() == [[2, 10, 11, 3, 20, 21, 22, 3], [2, 12, 3, 3, 0, 0, 0, 0]]
    assert joint.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 0, 0, 0, 0]]
    assert joint.in_passage().astype(int).tolist() == [[0, 0, 0, 0, 1, 1, 1, 0], [0] * 8]


@pytest.mark.slow
def test_spans_outside_the_passage_are_no_answers():
    config = RealmConfig(BERT, reader=BERT, answer_dim=6)
    params = like_new(config)
    joint = join(jnp.array([[2, 10, 3]]), jnp.array([[20, 21, 22, 0]]), VOCABULARY)
    scores = jax.jit(
        lambda params: config.build().apply(
            {"params": params}, method=lambda model: model.answer_scores(model.read(joint), joint.in_passage(), 2)
        )
    )(params)
    allowed = np.asarray(scores[0] > MASKED_LOGIT)
    assert np.argwhere(allowed).tolist() == [[3, 0], [3, 1], [4, 0], [4, 1], [5, 0]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder": replace(BERT, pooler=False)}, "encoder.pooler=False leaves a text without the vector"),
        ({"encoder": replace(BERT, heads=("masked_lm",))}, "would not be trained; set it to"),
        ({"reader": replace(BERT, vocab_size=61)}, "reader.vocab_size=61 is not encoder.vocab_size=60"),
        ({"answer_dim": 8}, "answer_dim=8 needs a reader"),
    ],
)
def test_networks_that_do_not_go_together(fields, message):
    with pytest.raises(InputError, match=message):
        replace(RealmConfig(BERT), **fields)


K, LENGTH = 3, 16
"""Passages, and ids of a question with one of them."""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    """(the arrays that both read, what Transformers makes of them, a folder)."""
    pytest.importorskip("torch", reason="torch is the oracle")
    folder = os.environ.get("TRANSFORMERS_4_57")
    if not folder:
        pytest.skip("Transformers 4.57.6 is the oracle: set TRANSFORMERS_4_57 to a folder with it (pip --target)")
    theirs = {
        "vocab_size": 60,
        "hidden_size": 12,
        "retriever_proj_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 17,
        "max_position_embeddings": 40,
        "num_candidates": K,
        "span_hidden_size": 6,
        "max_span_width": 4,
        "reader_beam_size": K,
        "searcher_beam_size": K,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "pad_token_id": 0,
    }
    draw = np.random.default_rng(0)
    questions = np.array([[2, 10, 4, 4, 12, 3]] * K)
    passages = draw.integers(20, 60, (K, LENGTH - 7))
    passages[1, -3:] = 0
    joint = jax.tree.map(np.asarray, join(jnp.asarray(questions), jnp.asarray(passages), VOCABULARY))
    labels = np.full(LENGTH, -100)
    labels[[2, 3]] = 33, 34
    texts = draw.integers(20, 60, (2, 9))
    texts[1, 6:] = 0
    arrays = {
        "input_ids": joint.ids,
        "attention_mask": joint.valid.astype(np.int64),
        "token_type_ids": joint.segments,
        "block_mask": np.asarray(Joint(*map(jnp.asarray, joint)).in_passage()),
        "scores": draw.normal(size=K).astype(np.float32),
        "labels": labels,
        "mlm_mask": (labels >= 0).astype(np.int64),
        "starts": np.array([[8, 9], [7, -1], [-1, -1]]),
        "ends": np.array([[9, 9], [9, -1], [-1, -1]]),
        "has_answers": np.array([True, True, False]),
        "texts": texts,
        "texts_valid": (texts != 0).astype(np.int64),
    }
    work = tmp_path_factory.mktemp("oracle")
    (work / "config.json").write_text(json.dumps(theirs))
    np.savez(work / "arrays.npz", **arrays)
    script = Path(__file__).parent / "realm_oracle.py"
    command = [sys.executable, script, work / "config.json", work / "arrays.npz", work / "out.npz"]
    subprocess.run(list(map(str, command)), check=True, env=os.environ | {"PYTHONPATH": folder})
    return arrays, dict(np.load(work / "out.npz")), work


def bert_of(oracle, kind, model, config):
    """The BERT in one of their models, or its gradients, read as a Hugging Face folder."""
    from safetensors.numpy import save_file

    _, found, work = oracle
    names = [name for name in found if name.startswith(f"parameter/{model}/")]
    values = {}
    for name in names:
        value = found.get(name.replace("parameter", kind, 1), np.zeros_like(found[name]))
        ours = name.removeprefix(f"parameter/{model}/")
        if ours.startswith("realm."):
            values[ours.replace("realm.", "bert.", 1)] = value
        elif config.heads and ours.startswith("cls.predictions."):
            values[ours] = value
    folder = work / f"{kind}-{model}"
    folder.mkdir()
    save_file(values, folder / "model.safetensors")
    sizes = {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM" if config.heads else "BertModel"],
        "vocab_size": 60,
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 17,
        "max_position_embeddings": 40,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    (folder / "config.json").write_text(json.dumps(sizes))
    return open_model(folder).params


def of_model(oracle, model):
    _, found, _ = oracle
    prefix = f"parameter/{model}/"
    return {name.removeprefix(prefix): jnp.asarray(value) for name, value in found.items() if name.startswith(prefix)}


@pytest.mark.oracle
def test_transformers_embeds_texts_alike(oracle):
    arrays, found, _ = oracle
    config, theirs = RealmConfig(BERT, shared=True, projection_dim=8), of_model(oracle, "embedder")
    params = {
        "encoder": bert_of(oracle, "parameter", "embedder", BERT),
        "dense": {"kernel": theirs["cls.dense.weight"].T, "bias": theirs["cls.dense.bias"]},
        "norm": {"scale": theirs["cls.LayerNorm.weight"], "bias": theirs["cls.LayerNorm.bias"]},
    }
    vectors = config.build().apply(
        {"params": {"passage_encoder": params}},
        jnp.asarray(arrays["texts"]),
        inputs_valid=jnp.asarray(arrays["texts_valid"] > 0),
        method="embed_questions",
    )
    np.testing.assert_allclose(vectors, found["vectors"], atol=1e-4)


@pytest.mark.oracle
def test_transformers_reads_masked_tokens_alike(oracle):
    """The likelihood of each token over all passages, as the released code has it, and its gradient."""
    arrays, found, _ = oracle
    reader = replace(BERT, heads=("masked_lm",), dropout_rate=0.0, attention_dropout_rate=0.0)
    config, params = RealmConfig(BERT, reader=reader), bert_of(oracle, "parameter", "encoder", reader)
    joint = joint_of(arrays)
    positions = jnp.asarray(np.repeat(np.flatnonzero(arrays["labels"] >= 0)[None], K, axis=0))
    targets = jnp.asarray(arrays["labels"][arrays["labels"] >= 0])

    def loss(params):
        def compute(model):
            logits = model.masked_lm_scores(gather_positions(model.read(joint), positions)).dense()
            tokens = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[None, :, None], axis=-1)[..., 0]
            passages = jax.nn.log_softmax(jnp.asarray(arrays["scores"]))
            return -marginal_likelihood(passages[None], tokens[None], by="token")[0] / len(targets)

        return config.build().apply({"params": {"reader": params}}, method=compute)

    value, gradients = jax.value_and_grad(loss)(params)
    np.testing.assert_allclose(value, found["loss"], rtol=1e-4)
    expected = bert_of(oracle, "gradient", "encoder", reader)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), gradients, expected)


@pytest.mark.oracle
def test_transformers_scores_spans_alike(oracle):
    arrays, found, _ = oracle
    config, theirs = RealmConfig(BERT, reader=BERT, answer_dim=6), of_model(oracle, "reader")
    params = {
        "reader": bert_of(oracle, "parameter", "reader", BERT),
        "answers": {
            "ends": {
                "kernel": theirs["qa_outputs.dense_intermediate.weight"].T,
                "bias": theirs["qa_outputs.dense_intermediate.bias"],
            },
            "norm": {
                "scale": theirs["qa_outputs.layer_normalization.weight"],
                "bias": theirs["qa_outputs.layer_normalization.bias"],
            },
            "scores": {
                "kernel": theirs["qa_outputs.dense_output.weight"].T,
                "bias": theirs["qa_outputs.dense_output.bias"],
            },
        },
    }
    joint = joint_of(arrays)
    scores = config.build().apply(
        {"params": params}, method=lambda model: model.answer_scores(model.read(joint), joint.in_passage(), 4)
    )
    starts, ends = found["candidate_starts"], found["candidate_ends"]
    expected = found["span_scores"]
    allowed = expected > -1e30
    ours = np.asarray(scores)[:, starts, ends - starts]
    assert allowed.any()
    np.testing.assert_array_equal(ours > MASKED_LOGIT, allowed)
    np.testing.assert_allclose(ours[allowed], expected[allowed], atol=1e-4)
    # Their loss, a softmax over the spans of all passages, from these scores.
    whole = np.where(allowed, ours, MASKED_LOGIT) + arrays["scores"][:, None]
    pairs = zip(arrays["starts"], arrays["ends"], strict=True)
    correct = [
        any((start, end) == pair for pair in zip(*of_passage, strict=True))
        for of_passage in pairs
        for start, end in zip(starts, ends, strict=True)
    ]
    log = whole.ravel()
    value = jax.nn.logsumexp(log) - jax.nn.logsumexp(log[np.array(correct)])
    np.testing.assert_allclose(value, found["reader_loss"], rtol=1e-4)


def joint_of(arrays):
    ids, segments, valid = (jnp.asarray(arrays[name]) for name in ("input_ids", "token_type_ids", "attention_mask"))
    return Joint(ids, segments, valid > 0)
