"""Whole runs of models of pictures with texts or boxes: stopped and gone on with, loaded, evaluated."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import traverse_util
from PIL import Image, ImageDraw

import t5x_lite
from t5x_lite.cli.main import main
from t5x_lite.data import ByteLevelBPE, CaptionFolder, CocoBoxes, Data
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.images.box_augmentation import BoxAugmentation
from t5x_lite.models import ClipConfig, ClipImageConfig, ClipTextConfig, DetrConfig, ResNetConfig
from t5x_lite.objectives import ContrastiveLanguageImage, ObjectDetection
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.runs.records import read_records
from t5x_lite.training import Evaluation

pytestmark = pytest.mark.slow  # a run comes first

SIZES = {"embed_dim": 16, "num_heads": 2, "mlp_dim": 16, "num_layers": 1}
CLIP = ClipConfig(
    ClipImageConfig(image_size=(16, 16), patch_size=8, **SIZES),
    ClipTextConfig(vocab_size=270, max_length=12, eos_id=2, **SIZES),
    projection_dim=8,
)
DETR = DetrConfig(
    ResNetConfig((1,), (8,), bottleneck=False, stem_width=8, heads=()),
    num_classes=2,
    num_queries=4,
    embed_dim=16,
    num_heads=2,
    mlp_dim=16,
    num_encoder_layers=1,
    num_decoder_layers=2,
)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """24 pictures of a white square or a wide box, each with a text and a box; the last eight are held out."""
    folder = tmp_path_factory.mktemp("shapes")
    records, annotations = [], []
    for number in range(24):
        split = "train" if number < 16 else "val"
        (folder / split).mkdir(exist_ok=True)
        image, kind = Image.new("RGB", (24, 24)), number % 2
        box = [1 + number % 5, 2 + number % 7, 8 + 6 * kind, 8]
        ImageDraw.Draw(image).rectangle((*box[:2], box[0] + box[2] - 1, box[1] + box[3] - 1), "white")
        image.save(folder / split / f"{number}.png")
        (folder / split / f"{number}.txt").write_text(("square", "wide box")[kind])
        records.append({"id": number, "file_name": f"{split}/{number}.png", "width": 24, "height": 24, "split": split})
        annotations.append({"image_id": number, "category_id": kind, "bbox": box})
    categories = [{"id": 0, "name": "square"}, {"id": 1, "name": "wide"}]
    content = {"images": records, "annotations": annotations, "categories": categories}
    (folder / "boxes.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def experiments(tiny, shapes, tmp_path_factory):
    cache = str(tmp_path_factory.mktemp("cache"))
    usual = {"optimizer": AdamW(Constant(1e-3), 0.1), "batch_size": 8}
    source, held_out = (CocoBoxes(str(shapes / "boxes.json"), split=("split", split)) for split in ("train", "val"))
    augmentation = BoxAugmentation((16, 16), (12, 16), 16, crop_short_sides=(16,), crop_sides=(8, 16))
    boxes = replace(
        tiny,
        model=DETR,
        objective=ObjectDetection(augmentation, (24, 24), max_boxes=2),
        data=Data(source, None, held_out_source=held_out, cache_dir=cache),
        **usual | {"evaluation": Evaluation(every=0, rows=8, metrics=("average_precision",))},
    )
    words = replace(
        tiny,
        model=CLIP,
        objective=ContrastiveLanguageImage(
            12, augmentation=Augmentation((16, 16), normalization="clip"), canvas_size=(24, 24)
        ),
        data=Data(
            CaptionFolder(str(shapes / "train")),
            ByteLevelBPE(270),
            held_out_source=CaptionFolder(str(shapes / "val")),
            cache_dir=cache,
        ),
        **usual | {"evaluation": Evaluation(every=0, rows=8, metrics=("retrieval",))},
    )
    return {"boxes": boxes, "words": words}


@pytest.fixture(scope="module", params=["boxes", "words"])
def run(request, experiments, train, tmp_path_factory):
    """(the experiment, the folder of its run)."""
    experiment, folder = experiments[request.param], tmp_path_factory.mktemp(request.param) / "run"
    train(experiment, folder, report=False)
    return experiment, folder


def params_of(workdir):
    return traverse_util.flatten_dict(jax.device_get(t5x_lite.load(workdir).params), sep="/")


def test_stopped_and_gone_on_with_it_is_the_same_run(run, train, tmp_path, stopped_after):
    """Matching, augmentation with boxes, drawn captions and dropout included."""
    experiment, folder = run
    with stopped_after(3):
        train(experiment, tmp_path, report=False)
    assert 3 <= max(int(path.name) for path in (tmp_path / "checkpoints").iterdir()) < experiment.steps
    train(experiment, tmp_path, report=False)
    undisturbed, gone_on = params_of(folder), params_of(tmp_path)
    for name, value in undisturbed.items():
        np.testing.assert_array_equal(gone_on[name], value, err_msg=name)
    losses = [
        [record["loss"] for record in read_records(one / "metrics.jsonl") if record["kind"] == "train"]
        for one in (folder, tmp_path)
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == experiment.steps


def test_its_figures_are_evaluated_again_with_intervals(run, capsys):
    experiment, folder = run
    of_run = [one for one in read_records(folder / "metrics.jsonl") if one["kind"] == "held_out"][-1]
    assert main(["evaluate", str(folder), "--json"]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    names = ("ap", "ap50") if experiment.model is DETR else ("text_recall_1", "image_recall_5")
    for name in names:
        assert again[name] == pytest.approx(of_run[name], abs=1e-6)
        low, high = again["intervals"][name]
        assert low <= again[name] <= high


def test_a_notebook_opens_it(run, shapes):
    experiment, folder = run
    model = t5x_lite.load(folder)
    pictures = [str(path) for path in sorted((shapes / "val").glob("*.png"))]
    if experiment.model is DETR:
        found = model.detect(pictures, 0.0)
        assert {len(one) for one in found} == {4}
        assert {label for one in found for label in one.labels} <= {"square", "wide"}
    else:
        names = {"square", "wide box"}
        answers = model.zero_shot(pictures, sorted(names), templates="{}")
        assert {one.label for answer in answers for one in answer} == names
