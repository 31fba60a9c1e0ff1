from dataclasses import replace
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.layers.embedding import Embedding
from t5x_lite.models import GptConfig, T5DecoderConfig
from t5x_lite.objectives import SequenceToSequence
from t5x_lite.objectives.losses import cross_entropy, not_padding, segments_of, shift_right

from ..slow import mostly_slow

RANDOM = np.random.default_rng(0)
LOGITS = jnp.asarray(3 * RANDOM.normal(size=(3, 4, 11)).astype(np.float32))
OBJECTIVE = SequenceToSequence(packed=False).for_vocabulary(Vocabulary(384))
TARGETS = jnp.asarray(RANDOM.integers(0, 11, size=(3, 4)))


def test_cross_entropy_is_that_of_optax_in_float32():
    expected = optax.softmax_cross_entropy_with_integer_labels(LOGITS, TARGETS)
    np.testing.assert_allclose(cross_entropy(LOGITS, TARGETS), expected, rtol=1e-5)
    assert cross_entropy(jnp.array([[1e4, 0.0]]), jnp.array([1]))[0] == 1e4
    assert cross_entropy(LOGITS.astype(jnp.bfloat16), TARGETS).dtype == jnp.float32


@pytest.fixture(scope="module")
def batch_loss(t5):
    module, params = t5

    @jax.jit
    def loss(inputs, targets, rows_valid):
        objective = replace(OBJECTIVE, label_smoothing=0.1, z_loss=0.01)
        features = {"inputs": inputs, "targets": targets, "valid": rows_valid}
        return objective.loss(module, params, features, None)

    return lambda *args: jax.tree.map(float, loss(*map(jnp.asarray, args)))


INPUTS = RANDOM.integers(3, 384, size=(3, 6)).astype(np.int32)
LABELS = np.array([[5, 6, 7, 1], [9, 1, 0, 0], [8, 8, 1, 0]], np.int32)


def test_batch_loss_is_the_sum_over_targets_that_are_no_padding(batch_loss, t5_logits):
    total, weight, metrics = batch_loss(INPUTS, LABELS, [True, True, True])
    decoder_inputs = np.array([[0, 5, 6, 7], [0, 9, 1, 0], [0, 8, 8, 1]], np.int32)
    logits = np.asarray(t5_logits(INPUTS, decoder_inputs, np.ones((3, 6), bool)), np.float64)
    log_z = np.log(np.exp(logits).sum(-1))
    likelihood = log_z - np.take_along_axis(logits, LABELS[..., None], -1)[..., 0]
    loss = 0.9 * likelihood + 0.1 * (log_z - logits.mean(-1)) + 0.01 * log_z**2
    real = LABELS != 0
    assert weight == real.sum() == 9
    assert total == pytest.approx(loss[real].sum(), rel=1e-4)
    assert metrics["loss"] == pytest.approx(likelihood[real].sum(), rel=1e-4)
    assert metrics["accuracy"] == (logits.argmax(-1) == LABELS)[real].sum()


def test_accuracy_counts_the_most_likely_token(batch_loss, t5_logits):
    first = np.asarray(t5_logits(INPUTS, np.zeros((3, 4), np.int32), np.ones((3, 6), bool)))[:, 0].argmax(-1)
    assert (first > 1).all()
    targets = np.pad(first[:, None], ((0, 0), (0, 3))).astype(np.int32)
    assert batch_loss(INPUTS, targets, [True, True, True])[2]["accuracy"] == 3
    assert batch_loss(INPUTS, targets, [True, False, True])[2]["accuracy"] == 2


def test_rows_that_are_not_valid_count_for_nothing(batch_loss):
    total, weight, metrics = batch_loss(INPUTS, LABELS, [True, False, True])
    other_inputs, other_labels = INPUTS.copy(), LABELS.copy()
    other_inputs[1], other_labels[1] = 77, 78
    assert batch_loss(other_inputs, other_labels, [True, False, True]) == (total, weight, metrics)
    assert weight == 7
    parts = [batch_loss(INPUTS, LABELS, np.eye(3, dtype=bool)[row]) for row in (0, 2)]
    assert total == pytest.approx(sum(part[0] for part in parts), rel=1e-5)


def test_nothing_valid_gives_zero_not_nan(batch_loss):
    assert batch_loss(INPUTS, LABELS, [False] * 3) == (0.0, 0.0, {"loss": 0.0, "accuracy": 0.0})


def test_dropout_needs_a_key_and_follows_it(t5):
    module, params = t5
    batch = {"inputs": jnp.asarray(INPUTS), "targets": jnp.asarray(LABELS)}
    loss = jax.jit(lambda key: OBJECTIVE.loss(module, params, batch, key)[0])
    first, again, other = (float(loss(jax.random.key(seed))) for seed in (0, 0, 1))
    deterministic = float(loss(None))
    assert first == again
    assert len({first, other, deterministic}) == 3


def test_each_segment_begins_with_the_start_id():
    targets = jnp.array([[5, 1, 6, 7, 1, 8, 1, 0, 0], [5, 5, 1, 0, 0, 0, 0, 0, 0]])
    segments = jnp.stack([segments_of(row, 0, 1) for row in targets])
    assert segments.tolist() == [[1, 1, 2, 2, 2, 3, 3, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0, 0]]
    shifted = shift_right(targets, 9, segments)
    assert shifted[0, :7].tolist() == [9, 5, 9, 6, 7, 9, 8]
    assert shifted[1, :3].tolist() == [9, 5, 5]


def test_padding_that_is_eos_too():
    rows = jnp.array([[7, 3, 3, 3], [3, 7, 8, 3], [7, 7, 7, 7], [3, 3, 3, 3]])
    assert not_padding(rows, 3, 3).astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]]
    assert not_padding(rows, 3, 1).tolist() == (rows != 3).tolist()


TINY = {"vocab_size": 30, "embed_dim": 8, "num_heads": 2, "mlp_dim": 12, "num_layers": 1}
DECODERS = {
    "GPT": GptConfig(**TINY, max_length=12),
    "T5": T5DecoderConfig(**TINY, head_dim=4, relative_buckets=8, relative_max_distance=12),
    "prefix LM": T5DecoderConfig(**TINY, head_dim=4, relative_buckets=8, relative_max_distance=12, full_prefix=True),
}


@pytest.fixture(scope="module", params=mostly_slow(DECODERS, "GPT", "prefix LM"))
def decoder(request, make_model):
    return make_model(DECODERS[request.param])


SOURCES, ANSWERS = [[5, 6, 7, 1], [8, 1]], [[9, 5, 1], [7, 7, 7, 1]]
ROWS = {
    "right": ([[5, 6, 7, 1, 0], [8, 1, 0, 0, 0]], [[9, 5, 1, 0], [7, 7, 7, 1]]),
    "left": ([[0, 5, 6, 7, 1], [0, 0, 0, 8, 1]], [[9, 5, 1, 0], [7, 7, 7, 1]]),
    "EOS itself": ([[5, 6, 7, 1, 1], [8, 1, 1, 1, 1]], [[9, 5, 1, 1], [7, 7, 7, 1]]),
}


@pytest.fixture(scope="module")
def read_as_one_text(decoder):
    """The loss of the answers row by row, the EOS of the source being what the decoder reads before them."""
    module, params = decoder
    total, apply = 0.0, jax.jit(lambda *ids: module.apply({"params": params}, *ids))
    for source, answer in zip(SOURCES, ANSWERS, strict=True):
        prefix, rest = jnp.array([source[:-1]]), jnp.array([[1, *answer[:-1]]])
        logits = apply(prefix, rest)[0]
        total += float(cross_entropy(logits, jnp.array(answer)).sum())
        if not module.config.full_prefix:
            alone = apply(jnp.concatenate([prefix, rest], axis=1))[0, len(source) - 1 :]
            np.testing.assert_allclose(logits, alone, atol=1e-5)
    return total


@pytest.fixture(scope="module")
def decoder_loss(decoder):
    module, params = decoder

    @partial(jax.jit, static_argnums=0)
    def loss(pad_id, inputs, targets):
        objective = OBJECTIVE.for_vocabulary(Vocabulary(384, pad_id=pad_id))
        return objective.loss(module, params, {"inputs": inputs, "targets": targets}, None)

    return lambda pad_id, *batch: loss(pad_id, *map(jnp.asarray, batch))


@pytest.mark.parametrize(
    ("decoder", "padding"),
    [("GPT", "right"), ("GPT", "EOS itself"), ("T5", "left"), ("prefix LM", "right")],
    indirect=["decoder"],
)
def test_a_decoder_reads_inputs_and_targets_as_one_text(decoder_loss, read_as_one_text, padding):
    total, weight, _ = decoder_loss(1 if padding == "EOS itself" else 0, *map(np.array, ROWS[padding]))
    assert weight == 7
    assert total == pytest.approx(read_as_one_text, rel=1e-5)


def check_causality(module, params):
    """No gradient reaches the embedding of a token on the decoder's side from a target before it."""
    inputs, targets = jnp.array([[5, 6, 7, 8, 1]]), jnp.array([[9, 8, 7, 6, 5, 1]])

    def loss(change, count):
        """Of the first `count` targets, `change` added to the embeddings of the decoder's side."""

        def add(call, args, kwargs, context):
            embedded = call(*args, **kwargs)
            if isinstance(context.module, Embedding) and context.method_name == "__call__":
                others = embedded.shape[1] - 6
                return embedded if others < 0 else embedded + jnp.pad(change, ((others, 0), (0, 0)))[None]
            return embedded

        asked = jnp.where(jnp.arange(6) < count, targets, 0)
        with nn.intercept_methods(add):
            return OBJECTIVE.loss(module, params, {"inputs": inputs, "targets": asked}, None)[0]

    gradient = jax.jit(jax.grad(loss))
    for count in (1, 3, 6):
        size = np.abs(gradient(jnp.zeros((6, module.config.embed_dim)), count)).max(-1)
        assert (size[:count] > 0).all()
        assert (size[count:] == 0).all()


def test_no_gradient_from_a_later_token_to_an_earlier_loss(t5):
    check_causality(*t5)


def test_no_gradient_from_a_later_token_to_an_earlier_loss_of_a_decoder(decoder):
    check_causality(*decoder)
