import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t5x_lite.data import ByteLevelBPE, Data, PythonDocs, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.evaluation.evaluator import Evaluator
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import (
    ClipConfig,
    ClipImageConfig,
    ClipResNetConfig,
    ClipTextConfig,
    SiglipConfig,
    SiglipImageConfig,
    SiglipTextConfig,
)
from t5x_lite.models.image_text import ImageTextVectors
from t5x_lite.objectives import (
    ContrastiveLanguageImage,
    ImageClassification,
    SigmoidLanguageImage,
    corrupt_rows,
)
from t5x_lite.objectives.contrastive import contrastive_loss, sigmoid_loss
from t5x_lite.optim.optimizers import AdamW, Sgd
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh
from t5x_lite.runs.preparation import check_vocabulary
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.step import Program

from ..programs import new_state

SIZES = {"embed_dim": 16, "num_heads": 2, "mlp_dim": 24, "num_layers": 2}
MODEL = ClipConfig(
    ClipImageConfig(image_size=(8, 8), patch_size=4, **SIZES),
    ClipTextConfig(vocab_size=40, max_length=6, **SIZES),
    projection_dim=12,
)
OBJECTIVE = ContrastiveLanguageImage(
    6, 3, Augmentation((8, 8), area=(0.5, 1.0), normalization="clip"), (10, 10)
).for_vocabulary(Vocabulary(40, pad_id=0, eos_id=39, unk_id=1, cls_id=38))
SIGLIP = SiglipConfig(
    SiglipImageConfig(image_size=(8, 8), patch_size=4, **SIZES), SiglipTextConfig(vocab_size=40, max_length=6, **SIZES)
)
SIGMOID = SigmoidLanguageImage(6, 3, Augmentation((8, 8), area=None, resize="stretch"), (10, 10)).for_vocabulary(
    Vocabulary(40, pad_id=39, eos_id=39, unk_id=1)
)
RESNET = replace(MODEL, image=ClipResNetConfig((1,), (8,), stem_width=4, image_size=(8, 8), num_heads=2))
BATCH, ONE = 56, MeshShape()


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(0)
    captions = random.integers(2, 38, (BATCH, 3, 6)).astype(np.int32)
    captions[..., -1] = 39
    return {
        "image": random.integers(0, 256, (BATCH, 10, 10, 3), np.uint8),
        "size": np.full((BATCH, 2), 10, np.int32),
        "captions": captions,
        "num_captions": random.integers(1, 4, BATCH).astype(np.int32),
    }


def vectors(rows=5, width=7):
    random = np.random.default_rng(1)
    drawn = random.normal(size=(2, rows, width))
    return jnp.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True), jnp.float32)


def test_the_loss_is_that_of_the_paper():
    """Its pseudocode (figure 3), with SciPy's words: cross entropies along both axes of one matrix."""
    images, texts = vectors()
    loss, weight, metrics = contrastive_loss(images, texts, jnp.float32(5.0), jnp.ones(5))
    logits = 5.0 * images @ texts.T
    rows, columns = (
        optax.losses.softmax_cross_entropy_with_integer_labels(x, jnp.arange(5)) for x in (logits, logits.T)
    )
    assert float(loss / weight) == pytest.approx(float((rows.mean() + columns.mean()) / 2), rel=1e-6)
    assert float(metrics["text_accuracy"]) == (logits.argmax(axis=1) == np.arange(5)).sum()
    assert float(metrics["image_accuracy"]) == (logits.argmax(axis=0) == np.arange(5)).sum()


def test_the_sigmoid_loss_is_that_of_the_paper():
    """Its pseudocode (algorithm 1), a row for each picture: binary cross entropies of all pairs."""
    images, texts = vectors()
    given = ImageTextVectors(images, texts, jnp.float32(5.0), jnp.float32(-2.0))
    loss, weight, metrics = sigmoid_loss(given, jnp.ones(5))
    logits = 5.0 * images @ texts.T - 2.0
    expected = optax.losses.sigmoid_binary_cross_entropy(logits, jnp.eye(5)).sum() / 5
    assert float(loss / weight) == pytest.approx(float(expected), rel=1e-6)
    assert float(metrics["text_accuracy"]) == (logits.argmax(axis=1) == np.arange(5)).sum()
    weights = jnp.array([1.0, 1.0, 1.0, 0.0, 0.0])
    padded = sigmoid_loss(given, weights)
    alone = sigmoid_loss(given._replace(images=images[:3], texts=texts[:3]), jnp.ones(3))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), padded, alone)


def test_the_guess_of_sigmoids_is_the_best_probability_for_all_pairs():
    alike = jnp.tile(jnp.eye(1, 7), (16, 1))
    losses = [
        sigmoid_loss(ImageTextVectors(alike, alike, jnp.float32(0.0), jnp.float32(bias)), jnp.ones(16))[0] / 16
        for bias in np.linspace(-2.9, -2.5, 41)
    ]
    guess = SIGMOID.baseline_loss({"rows": np.full(4, 16)}, SIGLIP)
    assert guess == pytest.approx(float(min(losses)), rel=1e-4)
    assert SIGMOID.baseline_loss({"rows": np.ones(3)}, SIGLIP) == 0.0


def test_rows_that_fill_up_a_batch_are_not_compared_with():
    images, texts = vectors()
    weights = jnp.array([1.0, 1.0, 1.0, 0.0, 0.0])
    padded = contrastive_loss(images, texts, jnp.float32(5.0), weights)
    alone = contrastive_loss(images[:3], texts[:3], jnp.float32(5.0), jnp.ones(3))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), padded, alone)


def test_a_caption_is_drawn_by_the_key_and_none_is_padding(batch):
    seen = {row: set() for row in range(BATCH)}
    draw = jax.jit(lambda key: corrupt_rows(OBJECTIVE, key, batch)["ids"])
    for seed in range(20):
        ids = np.asarray(draw(jax.random.key(seed)))
        for row in range(BATCH):
            seen[row] |= {n for n in range(3) if (ids[row] == batch["captions"][row, n]).all()}
    assert seen == {row: set(range(count)) for row, count in enumerate(batch["num_captions"].tolist())}
    first = corrupt_rows(OBJECTIVE.for_evaluation(), jax.random.key(0), batch)["ids"]
    np.testing.assert_array_equal(first, batch["captions"][:, 0])


def test_a_guess_is_measured_by_the_rows_of_its_batch(batch):
    """However many rows are prepared together: of 56 rows in batches of 40 the last 16 are compared with 16."""
    rows = [{name: column[number] for name, column in batch.items()} for number in range(BATCH)]
    small = Program(replace(experiment(), batch_size=40), OBJECTIVE, make_mesh(ONE, jax.devices()[:1]))
    evaluator = Evaluator(small, None, rows)
    expected = (40 * np.log(40) + 16 * np.log(16)) / 56
    assert evaluator.baseline_loss == pytest.approx(expected)
    alike = jnp.tile(jnp.eye(1, 7), (16, 1))
    loss, weight, _ = contrastive_loss(alike, alike, jnp.float32(5.0), jnp.ones(16))
    assert float(loss / weight) == pytest.approx(np.log(16), rel=1e-6)


def experiment(**changes):
    usual = {"model": MODEL, "objective": OBJECTIVE, "optimizer": AdamW()}
    return Experiment(data=Data(PythonDocs(), ByteLevelBPE()), steps=1, batch_size=BATCH, **usual | changes)


@functools.cache
def program(shape=ONE, devices=1, **changes):
    given = experiment(mesh=shape, **changes)
    return Program(given, given.objective, make_mesh(shape, jax.devices()[:devices]))


def after_a_step(program, batch, logit_scale):
    """(the metrics of its first step, the parameters after it), the temperature given."""
    state = new_state(program)
    params = jax.device_put(state.params | {"logit_scale": np.float32(logit_scale)}, program.state_shardings.params)
    state, metrics = program.train_step(state.replace(params=params), batch)
    return jax.device_get((metrics, state.params))


CASES = {
    "data, fsdp, tensor": (MeshShape(data=2, fsdp=2, tensor=2), {}),
    "sigmoids": (MeshShape(data=2, fsdp=2, tensor=2), {"model": SIGLIP, "objective": SIGMOID}),
    "resnet": (MeshShape(data=4, fsdp=2), {"model": RESNET}),
}


@pytest.fixture(scope="module")
def on_one_device(batch):
    """`on_one_device(**changes)`: (the first state, what a step makes of it), computed once for each model."""
    made = {}

    def stepped(**changes):
        model = changes.get("model", MODEL)
        if model not in made:
            one = program(**changes)
            first = new_state(one)
            kept = jax.device_get(first)
            made[model] = kept, jax.device_get(one.train_step(first, batch))
        return made[model]

    return stepped


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_devices_do_not_matter(batch, on_one_device, case):
    """Of the whole batch, whatever mesh holds it; the update is the gradient."""
    shape, changes = CASES[case]
    changes |= {"optimizer": Sgd(Constant(1.0), momentum=0.0)}
    first, (expected, metrics) = on_one_device(**changes)
    eight = program(shape, 8, **changes)
    step = eight.train_step.lower(eight.abstract_state, batch).compile()
    state = jax.device_put(first, eight.state_shardings)
    state, metrics_of_eight = step(state, jax.device_put(batch, batch_sharding(eight.mesh)))
    assert metrics_of_eight.keys() == metrics.keys()
    for name, value in metrics.items():
        np.testing.assert_allclose(metrics_of_eight[name], value, rtol=1e-5, err_msg=name)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), state.params, expected.params)
    # No device scores all rows against all.
    groups, compiled = shape.data * shape.fsdp, step.as_text()
    assert f"f32[{BATCH // groups},{BATCH}]" in compiled
    assert f"f32[{BATCH},{BATCH}]" not in compiled


@pytest.mark.slow
def test_the_temperature_has_a_bound_and_does_not_decay(batch):
    decays = program(optimizer=AdamW(Constant(1e-6), weight_decay=1e3))
    _, params = after_a_step(decays, batch, np.log(1 / 0.07))
    assert float(params["logit_scale"]) == pytest.approx(np.log(1 / 0.07), abs=2e-6)
    start = new_state(decays).params["image_projection"]["kernel"]
    np.testing.assert_allclose(params["image_projection"]["kernel"], 0.999 * start, atol=3e-6)
    _, params = after_a_step(decays, batch, 6.0)
    assert params["logit_scale"] == np.float32(np.log(100.0))
    # Where the bound holds the gradient is not zero: the parameter can leave it again.
    learns = program(optimizer=Sgd(Constant(1e-2), momentum=0.0))
    _, params = after_a_step(learns, batch, np.log(100.0))
    assert params["logit_scale"] < np.float32(np.log(100.0)) - 1e-4


@pytest.mark.parametrize(
    ("model", "vocabulary", "message"),
    [
        (
            MODEL,
            Vocabulary(40, eos_id=1),
            "eos_id=None reads texts at their largest id, and EOS is 1 of .* 40 ids; choose 1",
        ),
        (
            replace(MODEL, text=replace(MODEL.text, eos_id=3)),
            Vocabulary(40, eos_id=39),
            "eos_id=3 is not .* 39; choose 39",
        ),
    ],
)
def test_a_text_is_read_at_its_end_or_not_at_all(model, vocabulary, message):
    with pytest.raises(InputError, match=message):
        check_vocabulary(model, vocabulary)
    check_vocabulary(replace(model, text=replace(model.text, eos_id=vocabulary.eos_id)), vocabulary)
    check_vocabulary(MODEL, Vocabulary(40, eos_id=39))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accumulation": 2}, "accumulation=2 splits the batch"),
        ({"model": replace(MODEL, image=replace(MODEL.image, image_size=(12, 12)))}, "is not that of the pictures"),
        ({"model": replace(MODEL, text=replace(MODEL.text, max_length=5))}, "exceeds model.text.max_length=5"),
        ({"model": replace(MODEL, image=replace(MODEL.image, num_channels=1))}, "num_channels=1"),
        ({"model": MODEL.image}, "does not compare pictures with texts; give ContrastiveLanguageImage a ClipConfig"),
        ({"model": SIGLIP}, "is not what ContrastiveLanguageImage trains; give ContrastiveLanguageImage a ClipConfig"),
        ({"objective": SIGMOID}, "a ClipConfig, which is not what SigmoidLanguageImage trains; .* a SiglipConfig"),
        (
            {"model": SIGLIP, "objective": replace(SIGMOID, input_length=5)},
            "input_length=5 is less than model.text.max_length=6, the position at which a text is read; choose 6",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(experiment(), **changes)


def test_other_objectives_do_not_take_a_clip():
    with pytest.raises(InputError):
        replace(experiment(), objective=ImageClassification(Augmentation((8, 8)), (10, 10)))
