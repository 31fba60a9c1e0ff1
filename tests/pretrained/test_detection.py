"""The door of DETR: what Transformers' pieces give together, from pictures to objects with boxes in pixels."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from PIL import Image

import t5x_lite
from t5x_lite.convert import export_folder
from t5x_lite.errors import InputError
from t5x_lite.images.preparation import BoxPreparation
from t5x_lite.models import DetrConfig, ResNetConfig
from t5x_lite.pretrained import PretrainedDetector

from ..programs import corrupt, like_new

CONFIG = DetrConfig(
    ResNetConfig((1, 1), (8, 12), bottleneck=False, stem_width=4, heads=(), frozen_norm=True),
    num_classes=3,
    num_queries=9,
    embed_dim=16,
    num_heads=2,
    mlp_dim=24,
    num_encoder_layers=1,
    num_decoder_layers=2,
)
NAMES = ("cat", "dog", "N/A")


def picture(number, height=30, width=41):
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 6 + number, y * 7, (x + y) * 3 * number], axis=-1).astype(np.uint8)


PICTURES = [picture(0), picture(1, 60, 33), picture(2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with random parameters as a Hugging Face folder; pictures get 64 pixels on their shorter side."""
    folder = tmp_path_factory.mktemp("detr") / "hf"
    params = like_new(CONFIG, 1)
    params = jax.tree.map(lambda leaf: leaf * 3.0 if leaf.ndim > 1 else leaf, params)
    processor = {
        "image_processor_type": "DetrImageProcessor",
        "size": {"shortest_edge": 64, "longest_edge": 90},
        "do_pad": True,
    }
    export_folder(folder, CONFIG, params, None, labels=NAMES, image_processor=processor)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return t5x_lite.load(folder)


def test_it_is_a_detector_that_says_what_it_does(model):
    assert isinstance(model, PretrainedDetector)
    assert "detect, attention" in repr(model)
    assert "3 channels, prepared as preprocessor_config.json says" in repr(model)
    with pytest.raises(InputError, match="no classify; use detect and attention"):
        model.classify(PICTURES[0])


def test_objects_are_those_of_transformers(folder, model):
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    transformers = pytest.importorskip("transformers", reason="Transformers is the oracle")
    oracle = transformers.DetrForObjectDetection.from_pretrained(folder).eval()
    processor = transformers.DetrImageProcessorPil.from_pretrained(folder)
    for image in PICTURES:
        with torch.no_grad():
            outputs = oracle(**processor(Image.fromarray(image), return_tensors="pt"))
        # Theirs are torchvision's, for one picture.
        probabilities = outputs.logits.softmax(-1)[0, :, :-1]
        scores, classes = probabilities.max(-1)
        # Between two, so that rounding does not matter.
        threshold = float(scores.sort().values[3:5].mean())
        found = model.detect(image, threshold)
        order = [number for number in scores.argsort(descending=True).tolist() if scores[number] > threshold]
        assert [one.query for one in found] == order
        assert len(order) >= 3
        np.testing.assert_allclose(found.scores, scores[order], atol=1e-4)
        assert found.labels == tuple(NAMES[number] for number in classes[order].tolist())
        x, y, width, height = outputs.pred_boxes[0, order].unbind(-1)
        corners = torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], dim=-1)
        sides = np.tile(image.shape[1::-1], 2)
        np.testing.assert_allclose(found.boxes, corners.numpy() * sides, atol=1e-2)


def test_several_pictures_are_what_each_is_alone_whatever_its_size(model):
    together = model.detect(PICTURES, 0.0)
    for image, found in zip(PICTURES, together, strict=True):
        alone = model.detect(image, 0.0)
        np.testing.assert_allclose(found.boxes, alone.boxes, atol=1e-3)
        assert found.labels == alone.labels
        np.testing.assert_array_equal(found.original, image)
    assert len(together[0]) == 9
    assert together[0].scores.tolist() == sorted(together[0].scores.tolist(), reverse=True)


def test_each_query_that_finds_something_looks_somewhere(model):
    found = model.detect(PICTURES[0], 0.0)
    threshold = float(found.scores[4])
    attention = model.attention(PICTURES[0], threshold)
    assert [one.query for one in attention.found] == [one.query for one in found][:4]
    # 64 x 87 pixels, reduced by 8
    assert attention.weights.shape == (4, 8, 11)
    np.testing.assert_allclose(attention.weights.sum(axis=(1, 2)), 1.0, rtol=1e-5)
    assert np.abs(attention.weights[0] - attention.weights[1]).max() > 1e-6


def test_pictures_of_results_are_written(model, tmp_path):
    found = model.detect(PICTURES[0], 0.0)
    found.save(tmp_path / "found.png")
    model.attention(PICTURES[0], 0.0).save(tmp_path / "attention.png")
    for name in ("found.png", "attention.png"):
        assert Image.open(tmp_path / name).size[0] > 200
    assert f"{found[0].label}: " in repr(found)
    assert found._repr_png_()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_a_run_prepares_pictures_as_its_evaluation_does(model):
    from t5x_lite.data import CocoBoxes, Data
    from t5x_lite.images.box_augmentation import BoxAugmentation
    from t5x_lite.objectives import ObjectDetection
    from t5x_lite.optim.optimizers import AdamW
    from t5x_lite.training.experiment import Experiment

    augmentation = BoxAugmentation((96, 96), (64,), 90, crop_short_sides=(64,), crop_sides=(40, 64))
    objective = ObjectDetection(augmentation, (30, 41), max_boxes=5)
    experiment = Experiment(CONFIG, objective, Data(CocoBoxes("a.json"), None), AdamW(), steps=1, batch_size=1)
    run = replace(model, experiment=experiment, origin=None, classes=NAMES)
    assert isinstance(run.preparation, BoxPreparation)
    assert run.prepare(PICTURES[0]).shape == (96, 96, 3)
    row = {"boxes": np.zeros((5, 4), np.float32), "classes": np.zeros(5, np.int32), "areas": np.zeros(5, np.float32)}
    row |= {"crowd": np.zeros(5, np.int32), "num_boxes": np.int32(0), "image": PICTURES[0], "size": np.int32([30, 41])}
    features = corrupt(objective.for_evaluation(), jax.random.key(0), jax.tree.map(lambda x: x[None], row))
    outputs = jax.jit(lambda features: objective.prediction_outputs(model.module, model.params, features))
    expected = np.asarray(outputs(features))[0]
    found = run.detect(PICTURES[0], 0.0)
    order = np.argsort(-expected[:, 4], kind="stable")
    np.testing.assert_allclose(found.boxes, expected[order, :4] * [41, 30, 41, 30], atol=1e-3)
    np.testing.assert_allclose(found.scores, expected[order, 4], rtol=1e-4)
    assert run.attention(PICTURES[0], 0.0).weights.shape == (9, 8, 11)
    described = run.preparation.processor
    assert described["size"] == {"shortest_edge": 64, "longest_edge": 90}
    assert described["image_processor_type"] == "DetrImageProcessor"


def test_a_folder_goes_both_ways(model, folder, tmp_path):
    model.export(tmp_path / "again")
    for name in ("config.json", "preprocessor_config.json"):
        ours, theirs = (json.loads((one / name).read_text()) for one in (tmp_path / "again", folder))
        assert ours == theirs
    again = t5x_lite.load(tmp_path / "again").detect(PICTURES[0], 0.0)
    np.testing.assert_array_equal(again.boxes, model.detect(PICTURES[0], 0.0).boxes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.detect(PICTURES[0], 1.5), "threshold=1.5 is out of range; choose a probability"),
        (lambda m: m.detect(PICTURES[0], "a"), "threshold=a is out of range"),
        (lambda m: m.detect([]), "images is empty; give one or more"),
        (lambda m: m.detect("nowhere.jpg"), "nowhere.jpg"),
        (lambda m: m.detect(b"none"), "image: the picture is"),
        (lambda m: m.detect(PICTURES[0].astype(np.float32)), "image has type float32; give uint8"),
        (lambda m: m.attention(PICTURES), "image is a list of 3; give one picture"),
        (lambda m: m.attention(PICTURES[0], 1.0), "threshold=1.0: nothing is found with more than 0.*; choose less"),
    ],
)
def test_what_is_wrong_is_said(model, call, message):
    with pytest.raises(InputError, match=message):
        call(model)
