import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.data.tasks.text_to_text import TextPairs
from t5x_lite.errors import InputError
from t5x_lite.models import BartConfig, GptConfig, T5Config, TransformerConfig
from t5x_lite.objectives import SequenceToSequence, corrupt_rows

from ..slow import mostly_slow

PAD, EOS = 0, 1
VOCABULARY = Vocabulary(30, PAD, EOS)
INPUTS, TARGETS = 12, 9
TINY = {"vocab_size": 30, "embed_dim": 8, "num_heads": 2, "mlp_dim": 12}
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}
MODELS = {
    "T5": T5Config(**TINY, **LAYERS, head_dim=4, relative_buckets=8, relative_max_distance=12),
    "Transformer": TransformerConfig(**TINY, **LAYERS, max_length=INPUTS),
    "BART": BartConfig(**TINY, **LAYERS, max_length=INPUTS, output_bias=True),
    "GPT": GptConfig(**TINY, num_layers=1, max_length=INPUTS + TARGETS - 1),
}
PAIRS = [
    ([5, 6, 7], [8, 9]),
    ([10], [11, 12, 13]),
    ([14, 15, 16, 17], [18]),
    ([19, 20], [21, 22, 23]),
    ([24] * 11, [25] * 8),
]


def row(*pairs):
    """Pairs as the store has them, written out."""
    sides = []
    for side, length in ((0, INPUTS), (1, TARGETS)):
        ids = [token for pair in pairs for token in (*pair[side], EOS)]
        sides += ids + [PAD] * (length - len(ids))
    return sides


PACKED = np.array([row(*PAIRS[:3]), row(PAIRS[3]), row(PAIRS[4])], np.int32)
UNPACKED = np.array([row(pair) for pair in PAIRS], np.int32)


def batch_of(raw):
    return dict(zip(("inputs", "targets"), jnp.split(jnp.asarray(raw), [INPUTS], axis=1), strict=True))


def features_of(raw, *, packed):
    objective = SequenceToSequence(INPUTS, TARGETS, packed=packed, label_smoothing=0.1).for_vocabulary(VOCABULARY)
    return objective, jax.jit(lambda batch: corrupt_rows(objective, jax.random.key(0), batch))(batch_of(raw))


def test_rows_of_the_store_become_features():
    builder = TextPairs(INPUTS, TARGETS).start(VOCABULARY)
    for pair in PAIRS:
        builder.add([np.array(side, np.int32) for side in pair])
    builder.finish()
    assert {(*row["inputs"].tolist(), *row["targets"].tolist()) for row in builder.take()} == {
        tuple(ids) for ids in PACKED.tolist()
    }
    _, features = features_of(PACKED, packed=True)
    assert features["inputs"][0].tolist() == [5, 6, 7, 1, 10, 1, 14, 15, 16, 17, 1, 0]
    assert features["inputs_segments"][0].tolist() == [1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 0]
    assert features["targets"][0].tolist() == [8, 9, 1, 11, 12, 13, 1, 18, 1]
    assert features["decoder_segments"][0].tolist() == [1, 1, 1, 2, 2, 2, 2, 3, 3]
    assert (features["inputs_segments"][2] == 1).all()
    _, features = features_of(UNPACKED, packed=False)
    assert set(features) == {"inputs", "targets"}
    assert features["targets"][2].tolist() == [18, 1, 0, 0, 0, 0, 0, 0, 0]


@pytest.fixture(
    scope="module", params=["T5", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Transformer", "BART"))]
)
def encoder_decoder(request, make_model):
    return make_model(MODELS[request.param])


@pytest.fixture(scope="module")
def losses(encoder_decoder):
    """By packed or not: ((loss, (weight, metrics)), gradient) of all pairs."""
    module, params = encoder_decoder

    def compute(raw, *, packed):
        objective, features = features_of(raw, packed=packed)

        def loss(params):
            total, *rest = objective.loss(module, params, features, None)
            return total, rest

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)

    return {packed: compute(raw, packed=packed) for packed, raw in ((True, PACKED), (False, UNPACKED))}


def test_packed_rows_give_the_losses_of_the_unpacked(losses):
    (total, (weight, metrics)), gradient = losses[True]
    (alone, (alone_weight, alone_metrics)), alone_gradient = losses[False]
    assert weight == alone_weight == sum(len(target) + 1 for _, target in PAIRS)
    assert total == pytest.approx(float(alone), rel=1e-5)
    for name, value in metrics.items():
        assert value == pytest.approx(float(alone_metrics[name]), rel=1e-5)
    assert total != metrics["loss"]
    leaves = jax.tree_util.tree_leaves_with_path(alone_gradient)
    for (path, expected), got in zip(leaves, jax.tree.leaves(gradient), strict=True):
        # The softmax takes no notice of the keys' bias: what is below the floor is rounding.
        atol = 1e-4 * max(np.abs(expected).max(), 1e-2)
        np.testing.assert_allclose(got, expected, rtol=0, atol=atol, err_msg=jax.tree_util.keystr(path))


def test_answers_to_the_first_pair_of_a_packed_row(encoder_decoder):
    module, params = encoder_decoder
    objective, packed = features_of(PACKED, packed=True)
    alone, features = features_of(UNPACKED[[0, 3, 4]], packed=False)
    samples = objective.samples(module, params, packed)
    assert set(samples) == {"inputs", "targets", "answers"}
    for name, value in features.items():
        np.testing.assert_array_equal(samples[name], value)
    np.testing.assert_array_equal(samples["answers"], alone.predict(module, params, features))
    np.testing.assert_array_equal(samples["answers"], objective.predict(module, params, packed))
    assert samples["answers"].shape == (3, TARGETS)


@pytest.mark.parametrize("name", mostly_slow(["BART", "GPT"], "GPT"))
def test_answers_are_the_most_likely_tokens_of_the_teacher_forced_model(make_model, name):
    module, params = make_model(MODELS[name])
    objective, features = features_of(UNPACKED, packed=False)
    answers = objective.predict(module, params, features)
    ended = jnp.cumsum(answers == EOS, axis=1) - (answers == EOS) > 0
    assert (answers[ended] == PAD).all()
    # What the model wrote is, as targets, all that the accuracy counts.
    loss = jax.jit(lambda features: objective.loss(module, params, features, None))
    _, weight, metrics = loss(features | {"targets": answers})
    assert weight == (~ended & (answers != PAD)).sum()
    assert metrics["accuracy"] == weight


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_length": 1}, "target_length=1 is too small; choose 2 or more"),
        ({"input_length": 1}, "input_length=1 is too short"),
    ],
)
def test_fields_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        SequenceToSequence(**change)


def test_rows_of_another_length():
    objective, _ = features_of(PACKED, packed=True)
    with pytest.raises(ValueError, match="SequenceToSequence takes"):
        objective.corrupt(jax.random.key(0), {"inputs": jnp.zeros(11, jnp.int32), "targets": jnp.zeros(9, jnp.int32)})
