"""The fused loss: sums and gradients of the formulas, on one device and on eight, and what a program holds of it."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from t5x_lite.data import Vocabulary
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.models import GptConfig, T5Config
from t5x_lite.objectives import (
    CausalLanguageModel,
    SpanCorruption,
    causal_language_model,
    corrupt_rows,
    text_to_text,
    vocabulary_loss,
)
from t5x_lite.parallel import MeshShape, make_mesh, use_mesh
from t5x_lite.planning.hlo import read_arrays

from ..programs import arrays_in

B, L, D, V = 8, 6, 16, 22
RANDOM = np.random.default_rng(0)
HIDDEN_STATES = RANDOM.normal(size=(B, L, D))
KERNEL = RANDOM.normal(size=(D, V))
BIAS = RANDOM.normal(size=V)
TARGETS = RANDOM.integers(0, V, (B, L))
WEIGHTS = RANDOM.uniform(0.1, 2.0, (B, L)) * (RANDOM.uniform(size=(B, L)) < 0.7)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Of four tokens, whatever the sizes."""
    monkeypatch.setattr(vocabulary_loss, "CHUNK_BYTES", 0)
    monkeypatch.setattr(vocabulary_loss, "CHUNK_TOKENS", 4)


def scores_of(kernel=KERNEL, bias=BIAS, *, tied=False, dtype=jnp.float32, rows=B):
    axes, kernel = (("vocab", "embed"), kernel.T) if tied else (("embed", "vocab"), kernel)
    bias = None if bias is None else jnp.asarray(bias, jnp.float32)
    return LazyLogits(jnp.asarray(HIDDEN_STATES[:rows], dtype), jnp.asarray(kernel, jnp.float32), bias, axes, dtype)


def fused_loss(*arguments, **options):
    return vocabulary_loss.vocabulary_loss(*arguments, **options)


def plain_loss(scores, targets, weights, *, label_smoothing=0.0, z_loss=0.0, least_chunks=2):
    """From all logits at once, by Optax."""
    logits = scores.dense().astype(jnp.float32)
    one_hot = jax.nn.one_hot(targets, logits.shape[-1])
    loss = optax.softmax_cross_entropy(logits, optax.smooth_labels(one_hot, label_smoothing))
    loss += z_loss * jax.nn.logsumexp(logits, axis=-1) ** 2
    likelihood, correct = optax.softmax_cross_entropy(logits, one_hot), logits.argmax(axis=-1) == targets
    metrics = {"loss": (likelihood * weights).sum(), "accuracy": (correct * weights).sum()}
    return (loss * weights).sum(), weights.sum(), metrics


def loss_and_gradient(loss, scores, **options):
    """((sum, weight, metrics), the gradient of the sum to the scores)."""
    rows = scores.hidden.shape[0]

    def of(scores):
        total, *others = loss(scores, jnp.asarray(TARGETS[:rows]), jnp.asarray(WEIGHTS[:rows], jnp.float32), **options)
        return total, (total, *others)

    gradient, said = jax.jit(jax.grad(of, has_aux=True))(scores)
    return said, gradient


def by_hand(hidden, kernel, bias, label_smoothing, z_loss):
    """The same in float64, from the formulas."""
    logits = hidden @ kernel + bias
    highest = logits.max(-1, keepdims=True)
    log_z = (highest + np.log(np.exp(logits - highest).sum(-1, keepdims=True)))[..., 0]
    one_hot = np.eye(V)[TARGETS]
    likelihood = log_z - (logits * one_hot).sum(-1)
    smoothed = (1 - label_smoothing) * one_hot + label_smoothing / V
    loss = log_z - (logits * smoothed).sum(-1) + z_loss * log_z**2
    to_logits = np.exp(logits - log_z[..., None]) * (1 + 2 * z_loss * log_z)[..., None] - smoothed
    to_logits *= WEIGHTS[..., None]
    said = {
        "sum": (loss * WEIGHTS).sum(),
        "loss": (likelihood * WEIGHTS).sum(),
        "accuracy": ((logits.argmax(-1) == TARGETS) * WEIGHTS).sum(),
    }
    return said, (to_logits @ kernel.T, np.einsum("BLD,BLV->DV", hidden, to_logits), to_logits.sum((0, 1)))


def assert_near(got, expected, tolerance=1e-5):
    """In the norm, relative."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    assert got.shape == expected.shape
    assert np.linalg.norm(got - expected) <= tolerance * np.linalg.norm(expected)


@pytest.mark.parametrize("tokens_of_a_chunk", [1, 5, 1000], ids=lambda size: f"chunks of {size}")
@pytest.mark.parametrize(("label_smoothing", "z_loss"), [(0.0, 0.0), (0.1, 0.0), (0.2, 0.05)])
def test_sums_and_gradients_are_those_of_the_formulas(monkeypatch, tokens_of_a_chunk, label_smoothing, z_loss):
    """Of 48 tokens, which five do not divide; some weigh nothing."""
    monkeypatch.setattr(vocabulary_loss, "CHUNK_TOKENS", 1)
    monkeypatch.setattr(vocabulary_loss, "CHUNK_BYTES", 4 * V * tokens_of_a_chunk)
    options = {"label_smoothing": label_smoothing, "z_loss": z_loss}
    expected, gradients = by_hand(HIDDEN_STATES, KERNEL, BIAS, **options)
    (total, weight, metrics), gradient = loss_and_gradient(fused_loss, scores_of(), **options)
    assert total == pytest.approx(expected.pop("sum"), rel=1e-5)
    assert weight == pytest.approx(WEIGHTS.sum(), rel=1e-5)
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(expected, rel=1e-5)
    for got, wanted in zip((gradient.hidden, gradient.kernel, gradient.bias), gradients, strict=True):
        assert_near(got, wanted)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.bfloat16, 0.02)], ids=["float32", "bfloat16"]
)
def test_plain_and_fused_are_the_same(tied, dtype, tolerance):
    """In bfloat16 the sums too: of what is rounded before the products. Gradients are rounded at other places."""
    scores = scores_of(bias=None, tied=tied, dtype=dtype)
    options = {"label_smoothing": 0.1, "z_loss": 0.01}
    said, gradient = loss_and_gradient(fused_loss, scores, **options)
    expected, expected_gradient = loss_and_gradient(plain_loss, scores, **options)
    for got, wanted in zip(jax.tree.leaves(said), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    for got, wanted in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
        assert got.dtype == wanted.dtype
        assert_near(got, wanted, tolerance)


def test_the_first_of_equal_scores_is_the_answer():
    scores = scores_of(0 * KERNEL, 0 * BIAS)
    expected = ((TARGETS == 0) * WEIGHTS).sum()
    for said, _ in (loss_and_gradient(loss, scores) for loss in (fused_loss, plain_loss)):
        assert said[2]["accuracy"] == pytest.approx(expected, rel=1e-5)


def test_what_nobody_trains_has_no_gradient_computed():
    """The products of a chunk: the logits, and one for each that is asked for (that of the bias only adds up)."""

    def products(*names):
        scores = scores_of()

        def loss(asked):
            return fused_loss(replace(scores, **asked), jnp.asarray(TARGETS), jnp.ones((B, L)))[0]

        asked = {name: getattr(scores, name) for name in names}
        return str(jax.make_jaxpr(jax.grad(loss) if names else loss)(asked)).count(" dot_general[")

    counts = {names: products(*names) for names in [(), ("hidden",), ("kernel",), ("bias",), ("hidden", "kernel")]}
    assert counts == {(): 1, ("hidden",): 2, ("kernel",): 2, ("bias",): 2, ("hidden", "kernel"): 3}


def on(shape, scores, **options):
    """What eight devices say, and the program."""
    mesh = make_mesh(shape)

    def traced(scores):
        with use_mesh(mesh):
            return loss_and_gradient(fused_loss, scores, **options)

    parts = {"vocab": None if V % shape.tensor else "tensor", "embed": "fsdp"}
    kernel = NamedSharding(mesh, PartitionSpec(*map(parts.get, scores.axes)))
    scores = replace(scores, kernel=jax.device_put(scores.kernel, kernel))
    compiled = jax.jit(traced).lower(scores).compile()
    return compiled(scores), compiled.as_text()


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        pytest.param(MeshShape(8), B, marks=pytest.mark.slow),
        pytest.param(MeshShape(1, 8), B, marks=pytest.mark.slow),
        pytest.param(MeshShape(1, 2, 2, 2), B, marks=pytest.mark.slow),
        pytest.param(MeshShape(2, 1, 2, 2), B, marks=pytest.mark.slow),
        pytest.param(MeshShape(1, 2, sequence=4), B, marks=pytest.mark.slow),  # which does not divide the length,
        (MeshShape(2, 1, 4), B),  # the vocabulary
        (MeshShape(1, 4, 2), 3),  # or the rows
    ],
    ids=str,
)
def test_eight_devices_compute_what_one_does(shape, rows, tied):
    scores, options = scores_of(tied=tied, rows=rows), {"label_smoothing": 0.1, "z_loss": 0.01}
    (said, gradient), _ = on(shape, scores, **options)
    expected, expected_gradient = loss_and_gradient(plain_loss, scores, **options)
    for got, wanted in zip(jax.tree.leaves(said), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    for got, wanted in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
        assert_near(got, wanted)


def sent(text, kind):
    """The shapes that collectives of a kind give."""
    lines = [line for line in text.splitlines() if f" {kind}(" in line]
    return [array.shape for line in lines for array in read_arrays(line.split(" = ")[1].split(f" {kind}(")[0])]


def test_the_kernel_is_brought_together_once_and_its_gradient_cut_once():
    """However many chunks there are, of which only figures of tokens are sent."""
    _, text = on(MeshShape(2, 2, 2), scores_of(tied=True))
    assert " while(" in text
    assert sent(text, "all-gather") == [(V // 2, D)]
    assert sent(text, "reduce-scatter") == [(V // 2, D // 2)]
    tokens, chunk = B // 4 * L, 4
    added = {shape for shape in sent(text, "all-reduce") if math.prod(shape) > chunk}
    # Between copies of the model, of a token's vector what each part of the vocabulary asks, and of the bias.
    assert added == {(V // 2, D // 2), (tokens, D), (V // 2,)}


def test_no_gradient_goes_on_before_that_of_the_kernel_is_sharded():
    """Else a compiler may keep the whole of it, in float32, until the backward pass is done."""
    mesh, scores = make_mesh(MeshShape(2, 4)), scores_of(tied=True)

    def traced(scores):
        with use_mesh(mesh):
            return loss_and_gradient(fused_loss, scores)

    with jax.set_mesh(mesh):
        text = jax.jit(traced).lower(scores).as_text()
    barriers = [line for line in text.splitlines() if "optimization_barrier" in line]
    assert len(barriers) == 1
    assert f"tensor<{B}x{L}x{D}xf32>" in barriers[0]
    assert f"tensor<{V}x{D}xf32>" in barriers[0]


def largest_float32(jaxpr):
    """Elements of the largest float32 array that a traced program computes."""
    return max(array.size for array in arrays_in(jaxpr) if getattr(array, "dtype", None) == jnp.float32)


SIZES = {"vocab_size": 997, "embed_dim": 8, "num_heads": 2, "mlp_dim": 16}
FAMILIES = {
    "T5": (SpanCorruption(40), T5Config(**SIZES, head_dim=4, num_encoder_layers=1, num_decoder_layers=1)),
    "GPT": (CausalLanguageModel(16), GptConfig(**SIZES, num_layers=1, max_length=16)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_step_holds_the_logits_of_all_tokens(family, monkeypatch, make_model):
    """No float32 B x L x V; for masked language models see their own test."""
    objective, model = FAMILIES[family]
    objective = objective.for_vocabulary(Vocabulary(997, first_sentinel_id=996, num_sentinels=100))
    module, params = make_model(model)
    raw = jnp.ones((4, objective.layout.spec["ids"].size), jnp.int32)
    shape = jax.eval_shape(lambda: corrupt_rows(objective, jax.random.key(0), {"ids": raw}))["targets"].shape

    def largest():
        def loss(params, key):
            corrupt_key, dropout_key = jax.random.split(key)
            return objective.loss(module, params, corrupt_rows(objective, corrupt_key, {"ids": raw}), dropout_key)[0]

        return largest_float32(jax.make_jaxpr(jax.grad(loss))(params, jax.random.key(0)).jaxpr)

    everything = math.prod(shape) * 997
    assert largest() < everything / 2
    monkeypatch.setattr(text_to_text, "vocabulary_loss", plain_loss)
    monkeypatch.setattr(causal_language_model, "token_loss", plain_loss)
    assert largest() == everything
