from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from sklearn.metrics import top_k_accuracy_score

from t5x_lite.data import Data, batches
from t5x_lite.errors import InputError
from t5x_lite.evaluation.predictions import held_out_features
from t5x_lite.images.augmentation import Augmentation, ColorJitter, RandomErasing
from t5x_lite.images.mixing import Mixing
from t5x_lite.images.randaugment import RandAugment
from t5x_lite.metrics.scores import score
from t5x_lite.models import BertConfig
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import ImageClassification, corrupt_rows
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.step import Program

from ..programs import new_state

CLASSES = 7


@dataclass(frozen=True)
class TinyConfig(ModelConfig):
    """A dense layer a head over all pixels."""

    image_size: tuple[int, int] = (6, 6)
    num_channels: int = 3
    num_classes: int = CLASSES
    heads: tuple[str, ...] = ("classification", "distillation")

    def abstract_inputs(self):
        return (jax.ShapeDtypeStruct((1, *self.image_size, self.num_channels), jnp.float32),)

    def build(self, *, dtype: Any = jnp.float32, remat: Any = "none") -> nn.Module:
        return Tiny(self)


class Tiny(nn.Module):
    config: TinyConfig

    def setup(self):
        self.first, self.second = (nn.Dense(self.config.num_classes) for _ in range(2))

    def __call__(self, images):
        return self.class_logits(images)

    def hidden_states(self, images, *, deterministic=True):
        return images.reshape(len(images), 1, -1)

    def classification_logits(self, hidden, *, deterministic=True):
        return self.first(hidden[:, 0])

    def distillation_logits(self, hidden, *, deterministic=True):
        return self.second(hidden[:, 0])

    def class_logits(self, images, *, deterministic=True):
        hidden = self.hidden_states(images)
        return (self.classification_logits(hidden) + self.distillation_logits(hidden)) / 2


PLAIN = ImageClassification(Augmentation((6, 6), normalization="inception"), (8, 8))
MIXED = replace(PLAIN, mixing=Mixing(mixup=0.8, cutmix=1.0), label_smoothing=0.1)
FULL = replace(
    MIXED,
    augmentation=replace(
        MIXED.augmentation, rand_augment=RandAugment(1), color_jitter=ColorJitter(), random_erasing=RandomErasing()
    ),
)


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(0)
    return {
        "image": random.integers(0, 256, (16, 8, 8, 3), np.uint8),
        "size": random.integers(5, 50, (16, 2), np.int32),
        "label": random.integers(0, CLASSES, 16, np.int32),
    }


@pytest.fixture(scope="module")
def model():
    module = TinyConfig().build()
    return module, module.init(jax.random.key(0), jnp.ones((1, 6, 6, 3)))["params"]


@partial(jax.jit, static_argnums=0)
def features_of(objective, batch, seed=0):
    return corrupt_rows(objective, jax.random.key(seed), batch)


@partial(jax.jit, static_argnums=(0, 1))
def loss_of(objective, module, params, features):
    return objective.loss(module, params, features, None)


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_the_loss_is_the_mean_of_the_heads(model, batch):
    module, params = model
    features = features_of(PLAIN, batch)
    # Some of the labels are those of the highest logit.
    labels = np.where(np.arange(16) % 3, batch["label"], PLAIN.predict(module, params, features))
    features["label"] = jnp.asarray(labels)
    total, weight, metrics = loss_of(PLAIN, module, params, features)
    heads = PLAIN.apply(module, params, features)
    assert len(heads) == 2
    rows = np.arange(16)
    expected = np.mean([-log_softmax(logits)[rows, labels] for logits in heads]) * 16
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert (float(weight), float(metrics["loss"])) == (16.0, float(total))
    logits = np.asarray(PLAIN.logits(module, params, features))
    np.testing.assert_allclose(logits, (heads[0] + heads[1]) / 2, atol=1e-5)
    np.testing.assert_array_equal(PLAIN.predict(module, params, features), logits.argmax(axis=1))
    for top, name in ((1, "accuracy"), (5, "top_5_accuracy")):
        correct = top_k_accuracy_score(labels, logits, k=top, labels=range(CLASSES), normalize=False)
        assert 0 < correct < 16
        assert float(metrics[name]) == correct


def test_binary_cross_entropy(model, batch):
    module, params = model
    objective = replace(MIXED, loss_type="bce")
    features = features_of(objective, batch)
    total, _, _ = loss_of(objective, module, params, features)
    targets = np.asarray(objective.targets(features, CLASSES), np.float64)
    expected = 0.0
    for logits in objective.apply(module, params, features):
        chance = 1 / (1 + np.exp(-np.asarray(logits, np.float64)))
        expected += -(targets * np.log(chance) + (1 - targets) * np.log(1 - chance)).mean(axis=1).sum() / 2
    assert float(total) == pytest.approx(expected, rel=1e-5)


def test_binary_cross_entropy_of_several_labels_takes_those_of_a_mixed_picture_as_whole(model, batch):
    """As in DeiT III's code: every target above 0 is 1, and a batch that is not mixed has one a row."""
    module, params = model
    objective = replace(PLAIN, loss_type="multilabel_bce", mixing=Mixing(mixup=0.8))
    features = features_of(objective, batch)
    assert 0.0 < features["shares"][0] < 1.0
    for whole in (False, True):
        if whole:
            features |= {"shares": jnp.ones(16)}
        targets = np.zeros((16, CLASSES))
        targets[np.arange(16), batch["label"]] = 1.0
        targets[np.arange(16), np.roll(batch["label"], 1)] += not whole
        targets = targets.clip(max=1.0)
        expected = 0.0
        for logits in objective.apply(module, params, features):
            chance = 1 / (1 + np.exp(-np.asarray(logits, np.float64)))
            expected += -(targets * np.log(chance) + (1 - targets) * np.log(1 - chance)).mean(axis=1).sum() / 2
        total, _, _ = loss_of(objective, module, params, features)
        assert float(total) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(InputError, match=r"objective.label_smoothing=0.1 does not go with loss_type='multilabel_bce'"):
        replace(objective, label_smoothing=0.1)


def test_mixed_labels_sum_to_one_and_are_those_of_the_mixed_pictures(batch):
    """What is mixed is told apart by pictures of one number, that of their row."""
    objective = replace(MIXED, augmentation=replace(PLAIN.augmentation.for_evaluation(), normalization="none"))
    rows = np.arange(16)
    numbered = batch | {"image": np.broadcast_to(rows.astype(np.uint8)[:, None, None, None], (16, 8, 8, 3))}
    shares = []
    for seed in range(8):
        features = features_of(objective, numbered, seed)
        targets = np.asarray(objective.targets(features, CLASSES))
        np.testing.assert_allclose(targets.sum(axis=1), 1.0, rtol=1e-6)
        share = float(features["shares"][0])
        shares.append(share)
        mean = np.asarray(features["images"]).mean(axis=(1, 2, 3)) * 255
        np.testing.assert_allclose(mean, share * rows + (1 - share) * np.roll(rows, 1), atol=1e-3)
        one_hot = np.eye(CLASSES)[batch["label"]]
        expected = 0.9 * (share * one_hot + (1 - share) * np.roll(one_hot, 1, axis=0)) + 0.1 / CLASSES
        np.testing.assert_allclose(targets, expected, atol=1e-6)
    assert len(set(shares)) > 4


def test_copies_of_a_picture_are_augmented_differently(batch):
    """And a picture is not mixed with its own copy."""
    rows = [{name: column[number] for name, column in batch.items()} for number in range(3)]
    options = {"batch_size": 6, "seed": 0, "shuffle": False, "augmentation_repeats": 2}
    drawn = batches(rows, **options)[0]
    np.testing.assert_array_equal(drawn["label"], batch["label"][[0, 1, 2, 0, 1, 2]])
    images = features_of(PLAIN, drawn)["images"]
    assert (np.abs(images[:3] - images[3:]).max(axis=(1, 2, 3)) > 0.1).all()
    mixed = features_of(MIXED, drawn)
    np.testing.assert_array_equal(mixed["partner_label"], batch["label"][[2, 0, 1, 2, 0, 1]])


def test_evaluation_has_neither_augmentation_nor_mixing(batch):
    objective = FULL.for_evaluation()
    first, second = (jax.device_get(features_of(objective, batch, seed)) for seed in (0, 1))
    assert set(first) == {"images", "label"}
    jax.tree.map(np.testing.assert_array_equal, first, second)
    targets = objective.targets(features_of(objective, batch), CLASSES)
    np.testing.assert_allclose(targets, np.eye(CLASSES)[batch["label"]])
    trained = jax.device_get(features_of(FULL, batch))
    assert np.abs(trained["images"] - first["images"]).mean() > 0.1


@pytest.fixture(scope="module")
def experiment():
    return Experiment(TinyConfig(), FULL, Data(tokenizer=None), AdamW(Constant(0.01)), steps=2, batch_size=16)


@pytest.mark.slow
def test_on_eight_devices_and_in_parts_it_is_what_it_is_on_one_at_once(experiment, batch):
    def figures(experiment, devices):
        program = Program(experiment, experiment.objective, make_mesh(experiment.mesh, jax.devices()[:devices]))
        state, metrics = program.train_step(new_state(program), jax.device_put(batch))
        valid = jax.device_put(np.ones(16, bool))
        held_out = program.eval_step(state.params, jax.device_put(batch), valid, jax.device_put(np.int32(0)))
        return jax.device_get((metrics, held_out))

    expected = figures(experiment, 1)
    actual = figures(replace(experiment, mesh=MeshShape(2, 4), accumulation=2), 8)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), actual, expected)


def test_the_evaluation_step_scores_for_evaluation(experiment, model, batch):
    program = Program(experiment, FULL, make_mesh(MeshShape(), jax.devices()[:1]))
    params, valid = new_state(program).params, np.arange(16) < 11
    arrays = jax.device_put((batch, valid, np.int32(0)))
    figures = jax.device_get(program.eval_step(params, *arrays))
    plain = FULL.for_evaluation()
    features = features_of(plain, batch) | {"valid": jnp.asarray(valid)}
    total, weight, metrics = loss_of(plain, model[0], params, features)
    assert float(figures["loss"].weight) == 11
    assert float(figures["loss"].sum) == pytest.approx(float(total), rel=1e-5)
    assert float(figures["top_5_accuracy"].sum) == float(metrics["top_5_accuracy"])
    assert float(weight) == 11


def test_predictions_are_ranked_as_the_loss_counts_them(model, batch):
    module, params = model
    features = features_of(PLAIN.for_evaluation(), batch)
    outputs = np.asarray(PLAIN.prediction_outputs(module, params, features))
    logits = np.asarray(PLAIN.logits(module, params, features))
    np.testing.assert_array_equal(outputs, np.argsort(-logits, axis=1, kind="stable")[:, :5])
    predictions = PLAIN.predictions(outputs, jax.device_get(features), [], None, ())
    assert (predictions.type, predictions.names) == ("classes", ())
    assert PLAIN.default_metrics(predictions) == ("accuracy", "top_5_accuracy")
    _, weight, metrics = loss_of(PLAIN, module, params, features)
    for name, value in score(predictions, ("accuracy", "top_5_accuracy")).figures.items():
        assert 0 < value < 1 and value == pytest.approx(float(metrics[name] / weight))


def test_equal_logits_go_by_the_number_of_the_class(model, batch):
    module, params = model
    zeros = jax.tree.map(jnp.zeros_like, params)
    features = features_of(PLAIN, batch)
    outputs = PLAIN.prediction_outputs(module, zeros, features)
    np.testing.assert_array_equal(outputs, [list(range(5))] * 16)
    _, _, metrics = loss_of(PLAIN, module, zeros, features)
    assert float(metrics["top_5_accuracy"]) == (batch["label"] < 5).sum() < 16


def test_five_of_three_classes_say_nothing(batch):
    module = TinyConfig(num_classes=3).build()
    params = module.init(jax.random.key(0), jnp.ones((1, 6, 6, 3)))["params"]
    features = features_of(PLAIN, batch | {"label": batch["label"] % 3})
    assert set(loss_of(PLAIN, module, params, features)[2]) == {"loss", "accuracy"}
    outputs = np.asarray(PLAIN.prediction_outputs(module, params, features))
    assert np.sort(outputs, axis=1).tolist() == [[0, 1, 2]] * 16
    predictions = PLAIN.predictions(outputs, jax.device_get(features), [], None, ())
    assert PLAIN.default_metrics(predictions) == ("accuracy",)


def test_an_experiment_goes_to_json_and_back(experiment):
    assert Experiment.from_json(experiment.to_json()) == experiment


def test_constant_answers_and_samples():
    labels = {"label": np.int32([0, 0, 0, 1])}
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert PLAIN.baseline_loss(labels, TinyConfig()) == pytest.approx(entropy)
    # Two of seven classes have a loss.
    bce = replace(PLAIN, loss_type="bce").baseline_loss(labels, TinyConfig())
    assert bce == pytest.approx(2 * entropy / CLASSES)
    row = {"label": np.array(1), "answers": np.array(0)}
    assert PLAIN.format_sample(row, None, ("cat", "dog")) == "label:  dog\nmodel:  cat\n"
    assert PLAIN.format_sample(row, None, None) == "label:  1\nmodel:  0\n"


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (BertConfig(), "model is a BertConfig, which reads no pictures"),
        (TinyConfig(heads=()), r"model.heads=\(\) lacks classification"),
        (TinyConfig(image_size=(6, 8)), r"model.image_size=\(6, 8\) is not that of the pictures.*\(6, 6\)"),
        (TinyConfig(num_channels=1), "model.num_channels=1 is not objective.num_channels=3"),
    ],
)
def test_models_that_do_not_fit(model, problem):
    with pytest.raises(InputError, match=problem):
        PLAIN.check_model(model)


def test_numbers_of_classes_that_do_not_fit():
    with pytest.raises(InputError, match="has 2 classes .cat, dog.; set model.num_classes to 2, or correct"):
        PLAIN.check_labels(TinyConfig(), ("cat", "dog"))
    PLAIN.check_labels(TinyConfig(), None)


def test_features_of_many_rows_are_those_of_few_and_no_pictures(batch, monkeypatch):
    rows = [{name: column[n] for name, column in batch.items()} for n in range(len(batch["label"]))]
    whole = held_out_features(FULL, rows, len(rows))
    monkeypatch.setattr("t5x_lite.evaluation.predictions._ROWS", 3)
    parts = held_out_features(FULL, rows, len(rows), FULL.features_on_host)
    assert set(parts) == set(whole) - {"images"} == {"label"}
    np.testing.assert_array_equal(parts["label"], batch["label"])
    np.testing.assert_array_equal(held_out_features(FULL, rows, 5)["images"], whole["images"][:5])
