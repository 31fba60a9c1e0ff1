from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from scipy.stats import chisquare

from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, ElectraConfig, ElectraPairConfig
from t5x_lite.objectives import ReplacedTokenDetection, corrupt_rows

DISCRIMINATOR = ElectraConfig(
    vocab_size=61,
    embed_dim=15,
    token_embed_dim=10,
    num_heads=3,
    mlp_dim=17,
    num_layers=2,
    max_length=40,
    heads=("replaced_token",),
)
GENERATOR = replace(DISCRIMINATOR, embed_dim=8, num_heads=2, mlp_dim=9, num_layers=1, heads=("masked_lm",))
PAIR = ElectraPairConfig(GENERATOR, DISCRIMINATOR)


@partial(jax.jit, static_argnums=0)
def corrupt(objective, raw):
    return corrupt_rows(objective, jax.random.key(0), {"ids": raw})


@pytest.fixture(scope="module")
def objective(vocabulary):
    return ReplacedTokenDetection(30, input_format="segment-pair").for_vocabulary(vocabulary)


@pytest.fixture(scope="module")
def features(objective, make_rows):
    """Of six rows, some padded, the third not valid."""
    features = corrupt(objective, make_rows(objective.layout, 6))
    return features | {"valid": jnp.array([True, True, False, True, True, True])}


@pytest.fixture(scope="module")
def pair(make_model):
    return make_model(PAIR)


@pytest.fixture(scope="module")
def loss(objective, pair):
    """Compiled once: `loss(params, features)`."""
    return jax.jit(lambda params, features: objective.loss(pair[0], params, features, None))


def test_the_generator_sees_the_mask_in_85_percent(objective, make_rows, vocabulary):
    """The rest it sees as it is: no token is drawn at random."""
    raw = make_rows(objective.layout, 1000)
    seen = jax.device_get(corrupt(objective, raw))
    assert seen["sampling"].shape == (1000, 2)
    assert len(np.unique(seen["sampling"], axis=0)) == 1000
    asked = seen["targets"] != vocabulary.pad_id
    shown = np.take_along_axis(seen["inputs"], seen["positions"], 1)[asked]
    masked = shown == vocabulary.mask_id
    assert ((shown == seen["targets"][asked]) == ~masked).all()
    assert chisquare([masked.sum(), (~masked).sum()], len(masked) * np.array([0.85, 0.15])).pvalue > 1e-3


def test_detection_teaches_the_discriminator_and_the_shared_embeddings_alone(pair, features, loss):
    _, params = pair

    @jax.jit
    def gradients(params):
        def both(params):
            metrics = loss(params, features)[2]
            return metrics["detection_loss"].sum, metrics["loss"]

        _, pull_back = jax.vjp(both, params)
        return [pull_back(cotangents)[0] for cotangents in ((1.0, 0.0), (0.0, 1.0))]

    detected, message = jax.device_get(gradients(params))
    assert set(params) == {"embeddings", "generator", "discriminator"}
    for gradient, taught, untouched in (
        (detected, "discriminator", "generator"),
        (message, "generator", "discriminator"),
    ):
        for part in (taught, "embeddings"):
            leaves = traverse_util.flatten_dict(gradient[part], sep="/")
            # The softmax takes no notice of the keys' bias.
            still = {path for path, leaf in leaves.items() if not np.abs(leaf).max() > 1e-6}
            assert still <= {"encoder/layers/self_attention/key/bias"}
        for leaf in jax.tree.leaves(gradient[untouched]):
            assert leaf.size
            assert (np.asarray(leaf) == 0).all()


def test_loss_against_a_plain_computation(objective, pair, features, loss, say, token_losses):
    module, params = pair
    pad_id = objective.vocabulary.pad_id
    total, weight, metrics = jax.device_get(loss(params, features))
    sampled = jax.jit(
        lambda features: objective.sample(
            module.apply({"params": params}, method=lambda m: objective.token_scores(m, features, None).dense()),
            features["sampling"],
        )
    )(features)
    features = jax.device_get(features)
    generated = say(module, params, features["inputs"], features["segments"], pad_id)["generator"]
    tokens = token_losses(generated["masked_lm_logits"], features, pad_id)

    filled, replaced = features["inputs"].copy(), np.zeros(features["inputs"].shape, bool)
    for row, place in zip(*np.nonzero(features["targets"] != pad_id), strict=True):
        position = features["positions"][row, place]
        filled[row, position] = sampled[row, place]
        replaced[row, position] = sampled[row, place] != features["targets"][row, place]
    real = (features["inputs"] != pad_id) & features["valid"][:, None]
    # Where a padding id was sampled, it is a token like another one.
    detector = jax.jit(lambda ids, segments, valid: module.apply({"params": params}, ids, segments, inputs_valid=valid))
    scores = detector(filled, features["segments"], features["inputs"] != pad_id)["discriminator"]
    scores = np.asarray(scores["replaced_token_logits"], np.float64)
    detection = np.where(replaced, np.logaddexp(0, -scores), np.logaddexp(0, scores))[real]

    assert total / weight == pytest.approx(tokens.mean() + 50.0 * detection.mean(), rel=1e-5)
    assert weight == len(tokens)
    assert metrics["loss"] == pytest.approx(tokens.sum(), rel=1e-5)
    assert metrics["detection_loss"].sum == pytest.approx(detection.sum(), rel=1e-5)
    assert metrics["detection_loss"].weight == real.sum() < real[features["valid"]].size
    assert metrics["detection_accuracy"].sum == ((scores > 0) == replaced)[real].sum()
    assert metrics["replaced"].sum == replaced[real].sum() > 0


def test_the_features_decide_the_samples(pair, features, loss):
    _, params = pair
    first, again = (loss(params, features)[0] for _ in range(2))
    other = loss(params, features | {"sampling": features["sampling"] + 1})
    assert first == again
    assert other[0] != first
    assert other[2]["loss"] == loss(params, features)[2]["loss"]


def always(params, token):
    """Parameters with which the generator says `token` everywhere."""
    bias = params["generator"]["masked_lm"]["scores"]["bias"]
    scores = {"bias": bias.at[token].set(1e4)}
    masked_lm = params["generator"]["masked_lm"] | {"scores": scores}
    return params | {"generator": params["generator"] | {"masked_lm": masked_lm}}


def test_a_sample_that_equals_the_original_counts_as_original(objective, pair, loss):
    _, params = pair
    raw = np.full((6, 30), 20, np.int32)
    raw[:, 0], raw[:, [14, 29]] = objective.vocabulary.cls_id, objective.vocabulary.sep_id
    features = corrupt(objective, raw) | {"valid": jnp.ones(6, bool)}
    truthful, wrong = (loss(always(params, token), features)[2] for token in (20, 21))
    asked = 6 * round(0.15 * 30)
    assert truthful["accuracy"] == asked
    assert truthful["replaced"].sum == 0
    assert wrong["accuracy"] == 0
    assert wrong["replaced"].sum == asked


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_samples_follow_the_generators_softmax(objective, temperature):
    logits = np.random.default_rng(0).normal(size=(1, 1, 9)).astype(np.float32)
    objective = replace(objective, temperature=temperature)
    bits = jax.random.key_data(jax.random.split(jax.random.key(0), 20_000))
    drawn = jax.jit(objective.sample)(jnp.asarray(np.repeat(logits, 20_000, 0)), bits)
    shares = np.exp(logits[0, 0].astype(np.float64) / temperature)
    assert chisquare(np.bincount(drawn[:, 0], minlength=9), 20_000 * shares / shares.sum()).pvalue > 1e-3


def test_each_place_has_a_sample_of_its_own(objective):
    bits = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(0), 3)))
    sample = jax.jit(lambda bits: objective.sample(jnp.zeros((3, 50, 61)), bits))
    drawn = np.asarray(sample(bits))
    np.testing.assert_array_equal(sample(bits[[1, 2, 2]])[:2], drawn[1:])
    assert (drawn[0] != drawn[1]).mean() > 0.9
    assert (drawn[:, 1:] != drawn[:, :-1]).mean() > 0.9


def test_predictions_are_the_generators(objective, pair, features, say):
    module, params = pair
    pad_id = objective.vocabulary.pad_id
    predicted = np.asarray(jax.jit(lambda f: objective.predict(module, params, f))(features))
    said = say(module, params, features["inputs"], features["segments"], pad_id)["generator"]["masked_lm_logits"]
    best = np.take_along_axis(said.argmax(-1), np.asarray(features["positions"]), 1)
    np.testing.assert_array_equal(predicted, np.where(features["targets"] == pad_id, pad_id, best))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"discriminator_weight": 0.0}, "discriminator_weight=0.0"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"temperature": float("nan")}, "temperature=nan"),
    ],
)
def test_fields_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        ReplacedTokenDetection(**change)


def test_models_that_are_no_pair_or_too_short(objective):
    objective.check_model(PAIR)
    for model in (BertConfig(heads=("masked_lm",)), DISCRIMINATOR):
        name = type(model).__name__
        with pytest.raises(InputError, match=f"model is a {name}; ReplacedTokenDetection trains an ElectraPairConfig"):
            objective.check_model(model)
    with pytest.raises(InputError, match="input_length=41 exceeds model.max_length=40"):
        ReplacedTokenDetection(41).check_model(PAIR)
