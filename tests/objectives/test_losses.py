import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x_lite.objectives.losses import cross_entropy, encoder_decoder_loss

RANDOM = np.random.default_rng(0)
LOGITS = jnp.asarray(3 * RANDOM.normal(size=(3, 4, 11)).astype(np.float32))
TARGETS = jnp.asarray(RANDOM.integers(0, 11, size=(3, 4)))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_cross_entropy_equals_optax_and_numpy(label_smoothing, z_loss):
    loss, negative_log_likelihood = cross_entropy(LOGITS, TARGETS, label_smoothing=label_smoothing, z_loss=z_loss)
    labels = jax.nn.one_hot(TARGETS, 11)
    log_z = np.log(np.exp(np.asarray(LOGITS, np.float64)).sum(-1))
    expected = optax.softmax_cross_entropy(LOGITS, optax.smooth_labels(labels, label_smoothing)) + z_loss * log_z**2
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(negative_log_likelihood, optax.softmax_cross_entropy(LOGITS, labels), rtol=1e-5)


def test_gradient_in_closed_form():
    # d/dlogits = softmax (1 + 2 z_loss log Z) - smoothed labels
    def total(logits):
        return cross_entropy(logits, TARGETS, label_smoothing=0.2, z_loss=0.05)[0].sum()

    probabilities = jax.nn.softmax(LOGITS)
    log_z = jax.nn.logsumexp(LOGITS, axis=-1, keepdims=True)
    expected = probabilities * (1 + 2 * 0.05 * log_z) - (0.8 * jax.nn.one_hot(TARGETS, 11) + 0.2 / 11)
    np.testing.assert_allclose(jax.grad(total)(LOGITS), expected, atol=1e-5)


def test_large_and_half_precision_logits():
    loss, _ = cross_entropy(jnp.array([[1e4, 0.0]]), jnp.array([1]), z_loss=1e-4)
    assert loss[0] == pytest.approx(1e4 + 1e4)
    assert cross_entropy(LOGITS.astype(jnp.bfloat16), TARGETS)[0].dtype == jnp.float32


@pytest.fixture(scope="module")
def batch_loss(t5):
    module, params = t5

    @jax.jit
    def loss(inputs, targets, rows_valid):
        return encoder_decoder_loss(
            module, params, inputs, targets, None, pad_id=0, rows_valid=rows_valid, label_smoothing=0.1, z_loss=0.01
        )

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
    batch = jnp.asarray(INPUTS), jnp.asarray(LABELS)
    loss = jax.jit(lambda key: encoder_decoder_loss(module, params, *batch, key, pad_id=0)[0])
    first, again, other = (float(loss(jax.random.key(seed))) for seed in (0, 0, 1))
    deterministic = float(loss(None))
    assert first == again
    assert len({first, other, deterministic}) == 3
