from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import CocoBoxes, Data
from t5x_lite.errors import InputError
from t5x_lite.images.box_augmentation import BoxAugmentation
from t5x_lite.images.boxes import generalized_iou, to_centers, to_corners
from t5x_lite.models import Detections, DetrConfig, ResNetConfig, ViTConfig
from t5x_lite.objectives import DetectionLoss, ObjectDetection
from t5x_lite.objectives.detection import Objects, detected
from t5x_lite.optim.optimizers import Sgd
from t5x_lite.optim.schedules import Constant
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.training.experiment import Experiment
from t5x_lite.training.step import Program

from ..programs import corrupt, new_state

MODEL = DetrConfig(
    ResNetConfig((1, 1), (8, 12), bottleneck=False, stem_width=4, heads=(), frozen_norm=True),
    num_classes=4,
    num_queries=6,
    embed_dim=16,
    num_heads=2,
    mlp_dim=24,
    num_encoder_layers=1,
    num_decoder_layers=2,
)
OBJECTIVE = ObjectDetection(
    BoxAugmentation((32, 40), (24, 30), 40, crop_short_sides=(24,), crop_sides=(16, 24)), (20, 30), max_boxes=5
)
BATCH = 16


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(0)
    corners = random.uniform(0, 0.6, (BATCH, 5, 2))
    boxes = np.concatenate([corners, corners + random.uniform(0.1, 0.4, (BATCH, 5, 2))], axis=-1)
    return {
        "image": random.integers(0, 256, (BATCH, 20, 30, 3), np.uint8),
        "size": np.tile(np.int32([20, 30]), (BATCH, 1)),
        "boxes": boxes.astype(np.float32),
        "classes": random.integers(0, 4, (BATCH, 5)).astype(np.int32),
        "areas": np.ones((BATCH, 5), np.float32),
        "crowd": (np.arange(BATCH * 5).reshape(BATCH, 5) % 9 == 0).astype(np.int32),
        "num_boxes": (np.arange(BATCH) % 6).astype(np.int32),
    }


def drawn(seed=0, layers=3, rows=4, queries=6, classes=4, most=5):
    """Random outputs, and objects: 0, 1, ... of them."""
    random = np.random.default_rng(seed)
    found = Detections(
        jnp.asarray(random.normal(size=(layers, rows, queries, classes + 1)), jnp.float32),
        jnp.asarray(random.uniform(0.1, 0.9, (layers, rows, queries, 4)), jnp.float32),
    )
    objects = Objects(
        jnp.asarray(random.uniform(0.1, 0.9, (rows, most, 4)), jnp.float32),
        jnp.asarray(random.integers(0, classes, (rows, most)), jnp.int32),
        jnp.asarray(np.arange(most) < np.arange(rows)[:, None]),
    )
    return found, objects


@partial(jax.jit, static_argnames="loss")
def loss_of(found, objects, weights=None, loss=DetectionLoss()):  # noqa: B008 (it is frozen)
    weights = jnp.ones(len(objects.valid)) if weights is None else weights
    total, figures = loss(found, objects, weights, loss.totals(objects, weights, found.boxes.shape[2]))
    return total / weights.sum(), figures


def test_loss_figures_and_gradients_are_transformers():
    """With the outputs of our own layers, which its decoder normalizes in between."""
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    transformers = pytest.importorskip("transformers", reason="Transformers is the oracle")
    from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss

    config = transformers.DetrConfig(
        use_timm_backbone=False,
        backbone_config=transformers.ResNetConfig(out_features=["stage4"]),
        num_labels=4,
        decoder_layers=3,
        auxiliary_loss=True,
    )
    found, objects = drawn()
    logits, boxes = (torch.tensor(np.asarray(x), requires_grad=True) for x in found)
    labels = [
        {"class_labels": torch.tensor(classes[there]).long(), "boxes": torch.tensor(own[there])}
        for own, classes, there in zip(*map(np.asarray, objects), strict=True)
    ]
    expected, terms, _ = ForObjectDetectionLoss(logits[-1], labels, "cpu", boxes[-1], config, logits, boxes)
    expected.backward()
    compute = jax.jit(jax.value_and_grad(lambda found: loss_of(found, objects), has_aux=True))
    (loss, figures), gradients = compute(found)
    assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
    for ours, theirs in {"class_loss": "loss_ce", "box_loss": "loss_bbox", "iou_loss": "loss_giou"}.items():
        mean = figures[ours].sum / figures[ours].weight
        assert float(mean) == pytest.approx(terms[theirs].item(), rel=1e-5), ours
    cardinality = figures["cardinality_error"].sum / figures["cardinality_error"].weight
    assert float(cardinality) == pytest.approx(terms["cardinality_error"].item())
    np.testing.assert_allclose(gradients.class_logits, logits.grad, atol=1e-6)
    np.testing.assert_allclose(gradients.boxes, boxes.grad, atol=1e-5)


def test_outputs_that_say_what_there_is_have_no_loss():
    _, objects = drawn(layers=1)
    order = np.array([3, 0, 5, 2, 1, 4])
    rows = np.arange(4)[:, None]
    boxes = np.full((4, 6, 4), 0.5, np.float32)
    classes = np.full((4, 6), 4)
    boxes[rows, order[:5]] = np.where(objects.valid[..., None], objects.boxes, 0.5)
    classes[rows, order[:5]] = np.where(objects.valid, objects.classes, 4)
    found = Detections(jnp.asarray(30.0 * np.eye(5)[classes][None], jnp.float32), jnp.asarray(boxes)[None])
    loss, figures = loss_of(found, objects)
    assert float(loss) == pytest.approx(0.0, abs=1e-5)
    assert float(figures["cardinality_error"].sum) == float(figures["class_error"].sum) == 0.0
    matched = np.asarray(DetectionLoss().match(found, objects))[0]
    there = np.asarray(objects.valid)
    np.testing.assert_array_equal(matched[there], np.tile(order[:5], (4, 1))[there])


def test_rows_that_fill_up_a_batch_have_no_weight():
    found, objects = drawn()
    weights = jnp.array([1.0, 1.0, 1.0, 0.0])
    first = (Detections(*(x[:, :3] for x in found)), Objects(*(x[:3] for x in objects)))
    padded, alone = loss_of(found, objects, weights), loss_of(*first)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), padded, alone)


def test_pictures_without_objects_and_boxes_without_area_have_finite_gradients():
    found, objects = drawn()
    found = found._replace(boxes=found.boxes.at[..., 2:].set(0.0))
    compute = jax.jit(jax.grad(lambda found, objects: loss_of(found, objects)[0]))
    for valid in (objects.valid, jnp.zeros_like(objects.valid)):
        for gradient in compute(found, objects._replace(valid=valid)):
            assert np.isfinite(gradient).all()


def test_the_weights_of_costs_and_losses_are_what_they_are_called():
    found, objects = drawn()
    _, figures = loss_of(found, objects)
    terms = {"class": "class_loss", "box": "box_loss", "iou": "iou_loss"}
    last, one = Detections(*(x[-1:] for x in found)), {}
    for name in terms:
        weights = {f"{other}_weight": float(other == name) for other in terms}
        one[name] = loss_of(last, objects, loss=DetectionLoss(**weights))[0]
        mean = figures[terms[name]].sum / figures[terms[name]].weight
        assert float(one[name]) == pytest.approx(float(mean), rel=1e-5)
    whole, _ = loss_of(last, objects)
    assert float(whole) == pytest.approx(float(one["class"] + 5 * one["box"] + 2 * one["iou"]), rel=1e-5)
    by_box = DetectionLoss(class_cost=0.0, box_cost=1.0, iou_cost=0.0).match(last, objects)
    distance = np.abs(np.asarray(last.boxes)[0, 1] - np.asarray(objects.boxes)[1, 0]).sum(-1)
    assert int(by_box[0, 1, 0]) == distance.argmin()
    by_class = DetectionLoss(class_cost=1.0, box_cost=0.0, iou_cost=0.0).match(last, objects)
    of_class = np.asarray(jax.nn.softmax(last.class_logits[0, 1]))[:, int(objects.classes[1, 0])]
    assert int(by_class[0, 1, 0]) == of_class.argmax()


def test_overlaps_are_those_of_rectangles_on_a_grid():
    """Counted in pixels: intersection over union, less the share of the hull that is in neither."""
    random = np.random.default_rng(0)
    for _ in range(20):
        low = random.integers(0, 20, (2, 2))
        high = low + random.integers(1, 12, (2, 2))
        grids = np.zeros((3, 32, 32), bool)
        for grid, (left, top), (right, bottom) in zip(grids, low, high, strict=False):
            grid[top:bottom, left:right] = True
        (left, top), (right, bottom) = low.min(0), high.max(0)
        grids[2, top:bottom, left:right] = True
        both, either, hull = (grids[0] & grids[1]).sum(), (grids[0] | grids[1]).sum(), grids[2].sum()
        boxes = jnp.asarray(np.concatenate([low, high], axis=1), jnp.float32)
        found = generalized_iou(boxes[0], boxes[1])
        assert float(found) == pytest.approx(both / either - (hull - either) / hull, rel=1e-5)
        np.testing.assert_allclose(to_corners(to_centers(boxes)), boxes)


def test_features_have_the_objects_that_are_seen_and_no_crowds(batch):
    features = corrupt(OBJECTIVE.for_evaluation(), jax.random.key(0), batch)
    expected = (np.arange(5) < batch["num_boxes"][:, None]) & (batch["crowd"] == 0)
    np.testing.assert_array_equal(features["boxes_valid"], expected)
    np.testing.assert_allclose(to_corners(features["boxes"]), batch["boxes"], atol=1e-6)
    assert features["images"].shape == (BATCH, 32, 40, 3)
    assert features["extent"].tolist() == [[27, 40]] * BATCH, "no side has more than 40 pixels"
    assert "images" not in OBJECTIVE.features_on_host(features)
    one, other = (corrupt(OBJECTIVE, jax.random.key(seed), batch)["images"] for seed in (0, 1))
    assert (one != other).any()


def test_predictions_are_in_pixels_with_the_likeliest_class(batch):
    found, _ = drawn(layers=1, rows=BATCH)
    features = corrupt(OBJECTIVE.for_evaluation(), jax.random.key(0), batch)
    features = {name: np.asarray(column) for name, column in OBJECTIVE.features_on_host(features).items()}
    predictions = OBJECTIVE.predictions(np.asarray(detected(found)), features, (), None, None)
    assert predictions.type == "boxes"
    scale = np.array([30, 20, 30, 20])
    for row in range(BATCH):
        one, true = predictions.predicted[row], predictions.references[row]
        logits = np.asarray(found.class_logits[0, row])
        np.testing.assert_array_equal(one.classes, logits[:, :4].argmax(-1))
        np.testing.assert_allclose(one.scores, np.asarray(jax.nn.softmax(logits))[:, :4].max(-1), rtol=1e-5)
        np.testing.assert_allclose(one.boxes, np.asarray(to_corners(found.boxes[0, row])) * scale, atol=1e-4)
        count = batch["num_boxes"][row]
        np.testing.assert_allclose(true.boxes, batch["boxes"][row, :count] * scale, atol=1e-4)
        np.testing.assert_array_equal(true.crowd, batch["crowd"][row, :count])


def test_a_guess_has_the_loss_of_a_model_that_looks_at_nothing(batch):
    features = jax.device_get(corrupt(OBJECTIVE.for_evaluation(), jax.random.key(0), batch))
    valid = features["boxes_valid"]
    counts = np.bincount(features["classes"][valid], minlength=4)
    weights = np.append(counts, 0.1 * (6 * BATCH - valid.sum()))
    logits = jnp.asarray(np.log(weights / weights.sum()), jnp.float32)
    median = jnp.asarray(np.median(features["boxes"][valid], axis=0))
    found = Detections(jnp.broadcast_to(logits, (2, BATCH, 6, 5)), jnp.broadcast_to(median, (2, BATCH, 6, 4)))
    objects = Objects(*(jnp.asarray(features[name]) for name in ("boxes", "classes", "boxes_valid")))
    assert OBJECTIVE.baseline_loss(features, MODEL) == pytest.approx(float(loss_of(found, objects)[0]), rel=1e-5)
    nothing = features | {"boxes_valid": np.zeros_like(valid)}
    assert OBJECTIVE.baseline_loss(nothing, MODEL) == pytest.approx(0.0)


def experiment(**changes):
    usual = {"model": MODEL, "objective": OBJECTIVE, "optimizer": Sgd(Constant(1.0), momentum=0.0)}
    return Experiment(data=Data(CocoBoxes("a.json"), None), steps=1, batch_size=BATCH, **usual | changes)


def program(shape=None, devices=1, **changes):
    given = experiment(mesh=shape or MeshShape(), **changes)
    return Program(given, given.objective, make_mesh(given.mesh, jax.devices()[:devices]))


STILL = replace(MODEL, dropout_rate=0.0, attention_dropout_rate=0.0, mlp_dropout_rate=0.0)


@pytest.fixture(scope="module")
def stepped(batch):
    """(the first state, what a step on one device makes of it).

    Without biases the decoder's first norms are of zeros, and multiply a rounding by three hundred.
    """
    one = program(model=STILL)
    random = np.random.default_rng(1)
    state = new_state(one)
    params = jax.tree.map(lambda leaf: leaf + np.float32(random.normal(0, 0.1, leaf.shape)), state.params)
    state = state.replace(params=params)
    return jax.device_get(state), jax.device_get(one.train_step(state, batch))


@pytest.mark.slow
def test_on_eight_devices_and_in_parts_it_is_what_it_is_on_one_at_once(batch, stepped):
    """The means are over the objects of the whole batch, wherever they are; the update is the gradient."""
    first, (expected, figures) = stepped
    other = program(MeshShape(2, 2, tensor=2), 8, model=STILL, accumulation=2)
    state, metrics = other.train_step(jax.device_put(first, other.state_shardings), batch)
    assert metrics.keys() == figures.keys()
    for name, value in figures.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-4, err_msg=name)
    # One unit in the last place of the parameters changes a gradient by a thousandth of its largest element.
    size = jax.tree.map(lambda a, b: np.abs(a - b).max(), first.params, expected.params)
    jax.tree.map(
        lambda one, other, size: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 + 1e-3 * size),
        state.params,
        expected.params,
        size,
    )
    assert size["class_head"]["bias"] > 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ViTConfig()}, "ViTConfig, which finds no boxes; give ObjectDetection a DetrConfig"),
        ({"objective": replace(OBJECTIVE, max_boxes=9)}, "max_boxes=9 is more than the model finds, .*num_queries=6"),
        ({"objective": replace(OBJECTIVE, num_channels=1)}, "num_channels=3 is not objective.num_channels=1"),
        (
            {"data": Data(CocoBoxes("a.json", class_names=("a", "b")), None)},
            r"num_classes=4 does not go with the data, which have 2 classes \(a, b\); set model.num_classes to 2",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(experiment(), **changes)
