from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Data
from t5x_lite.errors import InputError
from t5x_lite.evaluation.predictions import held_out_features
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import MAEConfig, ViTConfig
from t5x_lite.objectives import MaskedAutoencoding, corrupt_rows
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.step import Program

from ..programs import new_state
from ..slow import mostly_slow

MODEL = MAEConfig(
    (8, 16),
    patch_size=4,
    embed_dim=8,
    num_heads=2,
    mlp_dim=12,
    num_layers=1,
    decoder_embed_dim=8,
    decoder_num_heads=2,
    decoder_mlp_dim=12,
    decoder_num_layers=1,
)
OBJECTIVE = MaskedAutoencoding(
    Augmentation((8, 16), area=(0.2, 1.0), normalization="inception"), (12, 10), patch_size=4
)
loss, predict, samples_of = (
    jax.jit(method, static_argnums=0) for method in (OBJECTIVE.loss, OBJECTIVE.predict, OBJECTIVE.samples)
)


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (16, 12, 10, 3), np.uint8)
    images[3] = 77  # a picture of one color
    return {"image": images, "size": random.integers(5, 50, (16, 2), np.int32)}


@pytest.fixture(scope="module")
def params():
    inputs = (jnp.zeros(array.shape) for array in MODEL.abstract_inputs())
    return jax.jit(MODEL.build().init)(jax.random.key(0), *inputs)["params"]


@pytest.fixture(scope="module")
def features(batch):
    return features_of(OBJECTIVE, batch)


def features_of(objective, batch, seed=0):
    return jax.jit(lambda batch: corrupt_rows(objective, jax.random.key(seed), batch))(batch)


def loss_by_hand(predicted, images, noise, norm_pix):
    """The mean over hidden patches of the squared error, patch by patch, in float64; also their number."""
    predicted, images, noise = (np.asarray(array, np.float64) for array in (predicted, images, noise))
    errors = []
    for row, image in enumerate(images):
        for patch in np.argsort(noise[row])[2:]:  # two of eight are seen
            top, left = 4 * (patch // 4), 4 * (patch % 4)
            target = image[top : top + 4, left : left + 4].ravel()
            if norm_pix:
                target = (target - target.mean()) / np.sqrt(target.var(ddof=1) + 1e-6)
            errors.append(((predicted[row, patch] - target) ** 2).mean())
    return np.mean(errors), len(errors)


@pytest.mark.parametrize("norm_pix", mostly_slow([True, False], True))
def test_the_loss_is_the_squared_error_of_three_quarters_of_the_patches(features, params, norm_pix):
    module = replace(MODEL, norm_pix=norm_pix).build()
    total, weight, metrics = loss(module, params, features, None)
    predicted = predict(module, params, features)
    expected, count = loss_by_hand(predicted, features["images"], features["noise"], norm_pix)
    assert count == 16 * 6
    assert float(total / weight) == pytest.approx(expected, rel=1e-5)
    assert (float(weight), float(metrics["loss"])) == (16.0, float(total))
    _, mask = jax.jit(partial(OBJECTIVE.apply, module))(params, features)
    np.testing.assert_array_equal(mask.sum(axis=1), np.full(16, 0.75 * 8))


def test_rows_that_fill_up_a_batch_have_no_weight(features, params):
    module = MODEL.build()
    valid = np.arange(16) < 11
    total, weight, _ = loss(module, params, features | {"valid": jnp.asarray(valid)}, None)
    first = {name: column[:11] for name, column in features.items()}
    expected, _, _ = loss(module, params, first, None)
    assert float(weight) == 11
    assert float(total) == pytest.approx(float(expected), rel=1e-5)


def test_every_row_hides_patches_of_its_own_and_others_the_next_time(batch, features):
    noise = np.asarray(features["noise"])
    assert noise.shape == (16, 8) and len(np.unique(noise)) > 120
    again = features_of(OBJECTIVE, batch)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(again), jax.device_get(features))
    other = features_of(OBJECTIVE, batch, seed=1)
    assert not np.isin(np.asarray(other["noise"]), noise).all(axis=1).any()
    assert np.abs(np.asarray(other["images"]) - np.asarray(features["images"])).mean() > 0.05


def test_evaluation_has_the_center_and_the_same_noise(batch, features):
    objective = OBJECTIVE.for_evaluation()
    plain = features_of(objective, batch)
    np.testing.assert_array_equal(plain["noise"], features["noise"])
    key = jax.random.key(9)
    augment = jax.vmap(lambda image, size: OBJECTIVE.augmentation.for_evaluation()(key, image, size))
    expected = jax.jit(augment)(batch["image"], batch["size"])
    np.testing.assert_allclose(plain["images"], expected, atol=1e-6)
    rows = [{name: column[n] for name, column in batch.items()} for n in range(16)]
    kept = held_out_features(OBJECTIVE, rows, 16, OBJECTIVE.features_on_host)
    assert set(kept) == {"means", "variances", "noise"} and kept["variances"].shape == (16, 8)
    np.testing.assert_array_equal(kept["noise"], plain["noise"])


@pytest.mark.parametrize("norm_pix", mostly_slow([True, False], True))
def test_the_best_guess_that_is_the_same_for_all_pictures(batch, features, norm_pix):
    """One shade a patch: zero where patches are normalized, else the mean of all patches at a position."""
    model = replace(MODEL, norm_pix=norm_pix)
    images = np.asarray(features["images"], np.float64)
    if norm_pix:
        guess = np.zeros((16, 8, 48))
    else:
        shades = images.reshape(16, 2, 4, 4, 4, 3).mean(axis=(0, 2, 4, 5)).ravel()
        guess = np.broadcast_to(shades[None, :, None], (16, 8, 48))
    expected, _ = loss_by_hand(guess, images, features["noise"], norm_pix)
    actual = OBJECTIVE.baseline_loss(jax.device_get(OBJECTIVE.features_on_host(features)), model)
    assert actual == pytest.approx(expected, rel=1e-4)
    if norm_pix:  # all patches but those of the picture of one color
        assert actual == pytest.approx(47 / 48 * 15 / 16, rel=1e-3)


@pytest.fixture(scope="module")
def experiment():
    return Experiment(MODEL, OBJECTIVE, Data(tokenizer=None), AdamW(Constant(0.01)), steps=2, batch_size=16)


def figures_of(experiment, batch, devices):
    program = Program(experiment, experiment.objective, make_mesh(experiment.mesh, jax.devices()[:devices]))
    state, metrics = program.train_step(new_state(program), jax.device_put(batch))
    valid = jax.device_put(np.ones(16, bool))
    held_out = program.eval_step(state.params, jax.device_put(batch), valid, jax.device_put(np.int32(0)))
    return jax.device_get((metrics, held_out))


@pytest.fixture(scope="module")
def figures(experiment, batch):
    return figures_of(experiment, batch, 1)


@pytest.mark.slow
def test_on_eight_devices_and_in_parts_it_is_what_it_is_on_one_at_once(experiment, batch, figures):
    actual = figures_of(replace(experiment, mesh=MeshShape(2, 4), accumulation=2), batch, 8)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=5e-5), actual, figures)


def test_samples_are_lines_of_figures(features, params):
    samples = jax.device_get(samples_of(MODEL.build(), params, features))
    total, _, _ = loss(MODEL.build(), params, features, None)
    assert samples["loss"].sum() == pytest.approx(float(total), rel=1e-5)
    row = {name: column[0] for name, column in samples.items()} | {"loss": np.float32(0.5)}
    assert OBJECTIVE.format_sample(row, None, None) == "hidden: 6 of 8 patches\nmodel:  squared error 0.500\n"


@pytest.mark.parametrize("norm_pix", mostly_slow([True, False], True))
def test_a_run_draws_original_masked_and_reconstruction(features, params, norm_pix):
    module = replace(MODEL, norm_pix=norm_pix).build()
    samples = jax.device_get(samples_of(module, params, features))
    predicted = np.asarray(predict(module, params, features))
    for number in (0, 3):
        drawn = OBJECTIVE.sample_pictures({name: column[number] for name, column in samples.items()})
        assert list(drawn) == ["original", "masked", "reconstruction"]
        # "inception" maps 0 to 255 onto -1 to 1.
        image = np.asarray(features["images"][number], np.float64)
        np.testing.assert_array_equal(drawn["original"], np.rint((image + 1) * 127.5).astype(np.uint8))
        visible = np.argsort(np.asarray(features["noise"][number]))[:2]
        for patch in range(8):
            window = np.s_[4 * (patch // 4) :, 4 * (patch % 4) :]
            original, masked, reconstruction = (one[window][:4, :4] for one in drawn.values())
            if patch in visible:
                np.testing.assert_array_equal(masked, original)
                np.testing.assert_array_equal(reconstruction, original)
                continue
            assert (masked == 128).all()
            target = image[window][:4, :4]
            scale, mean = (np.sqrt(target.var(ddof=1) + 1e-6), target.mean()) if norm_pix else (1.0, 0.0)
            filled = predicted[number, patch].reshape(4, 4, 3) * scale + mean
            expected = np.clip((filled + 1) * 127.5, 0, 255)
            np.testing.assert_allclose(reconstruction, expected, atol=0.51)


def test_an_experiment_goes_to_json_and_back(experiment):
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert list(experiment.objective.layout.spec) == ["image", "size"]


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (ViTConfig(), "model is a ViTConfig, which fills in no patches; give MaskedAutoencoding an MAEConfig"),
        (replace(MODEL, image_size=(16, 8)), r"model.image_size=\(16, 8\) is not that of the pictures.*\(8, 16\)"),
        (replace(MODEL, num_channels=1), "model.num_channels=1 is not objective.num_channels=3"),
        (replace(MODEL, patch_size=2), "model.patch_size=2 is not objective.patch_size=4"),
    ],
)
def test_models_that_do_not_fit(model, problem):
    with pytest.raises(InputError, match=problem):
        OBJECTIVE.check_model(model)


def test_patches_that_do_not_divide_the_pictures():
    with pytest.raises(InputError, match=r"patch_size=5 does not divide objective.augmentation.image_size=\(8, 16\)"):
        replace(OBJECTIVE, patch_size=5)
