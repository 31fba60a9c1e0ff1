"""Whole runs of classifiers of pictures: stopping and going on changes nothing, and one run teaches another one."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import traverse_util
from PIL import Image

import t5x_lite
from t5x_lite.convert import export_folder
from t5x_lite.data import Data, Digits, ImageArrays
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.images.mixing import Mixing
from t5x_lite.models import DeiTConfig, MAEConfig, ResNetConfig
from t5x_lite.objectives import ImageClassification, ImageDistillation, MaskedAutoencoding
from t5x_lite.optim.optimizers import AdamW, ParameterAverage, Sgd
from t5x_lite.optim.schedules import Constant
from t5x_lite.planning.plan import objective_without_text
from t5x_lite.runs.records import read_records

RESNET = ResNetConfig((1,), (8,), False, stem_width=8, stem="whole", num_channels=1, num_classes=10)
DEIT = DeiTConfig((8, 8), 4, 1, embed_dim=8, num_heads=2, mlp_dim=8, num_layers=1, num_classes=10)
OPTIONS = {"augmentation": Augmentation((8, 8), flip=0.0), "canvas_size": (8, 8), "num_channels": 1}


@pytest.fixture(scope="module")
def experiment(tiny, tmp_path_factory):
    cache = str(tmp_path_factory.mktemp("cache"))
    data = Data(Digits(), None, held_out_source=Digits("test"), cache_dir=cache, augmentation_repeats=3)
    objective = ImageClassification(**OPTIONS, mixing=Mixing(mixup=0.8))
    optimizer, average = Sgd(Constant(0.1)), ParameterAverage(0.9)
    return replace(tiny, model=RESNET, objective=objective, data=data, optimizer=optimizer, average=average)


@pytest.fixture(scope="module")
def run(experiment, train, tmp_path_factory):
    """The folder of a run of a ResNet."""
    folder = tmp_path_factory.mktemp("resnet") / "run"
    train(experiment, folder, report=False)
    return folder


def student_of(experiment, teacher):
    objective = ImageDistillation(**OPTIONS, teacher=str(teacher))
    return replace(experiment, model=DEIT, objective=objective, optimizer=AdamW(Constant(1e-3)), steps=2)


def params_of(workdir):
    return traverse_util.flatten_dict(jax.device_get(t5x_lite.load(workdir).params), sep="/")


@pytest.mark.slow
def test_stopped_and_gone_on_with_it_is_the_same_run(experiment, run, train, tmp_path, stopped_after):
    """Copies of repeated augmentation, running statistics and the moving average included."""
    with stopped_after(3):
        train(experiment, tmp_path, report=False)
    assert 3 <= max(int(path.name) for path in (tmp_path / "checkpoints").iterdir()) < 6
    train(experiment, tmp_path, report=False)
    ours, expected = params_of(tmp_path), params_of(run)
    assert np.abs(expected["stem_norm/mean"]).min() > 0 and (expected["stem_norm/variance"] != 1).all()
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    losses = [
        [record["loss"] for record in read_records(folder / "metrics.jsonl") if record["kind"] == "train"]
        for folder in (run, tmp_path)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 6


@pytest.mark.slow
def test_a_run_teaches_another_one(experiment, run, train, tmp_path):
    student = student_of(experiment, run)
    objective = objective_without_text(student)
    assert objective.frozen_model == RESNET and objective.teacher_statistics[0] == (0.485, 0.456, 0.406)
    before = params_of(run)
    train(student, tmp_path, report=False)
    records = read_records(tmp_path / "metrics.jsonl")
    trained = [record for record in records if record["kind"] == "train"]
    assert all({"label_loss", "teacher_loss", "agreement"} <= record.keys() for record in trained)
    assert not any("teacher_loss" in record for record in records if record["kind"] == "held_out")
    assert [record["kind"] for record in records].count("held_out") == 1
    assert "distillation/scores/kernel" in params_of(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, params_of(run), before)


@pytest.mark.slow
def test_a_masked_autoencoder_ends_with_pictures(experiment, train, tmp_path):
    decoder = {"decoder_embed_dim": 8, "decoder_num_heads": 2, "decoder_mlp_dim": 8, "decoder_num_layers": 1}
    model = MAEConfig((8, 8), 4, 1, 8, 2, 8, 1, **decoder)
    objective = MaskedAutoencoding(**OPTIONS, patch_size=4)
    train(replace(experiment, model=model, objective=objective, optimizer=AdamW(Constant(1e-3)), steps=1), tmp_path)
    picture = Image.open(tmp_path / "samples.png")
    assert picture.size[1] > 1.5 * picture.size[0], "five rows of three"
    assert (tmp_path / "samples.txt").read_text().count("hidden: 3 of 4 patches") == 5


@pytest.mark.slow
def test_a_folder_of_hugging_face_teaches(experiment, run, tmp_path):
    teacher = t5x_lite.load(run)
    model = ResNetConfig((1, 1), (8, 8), False, stem_width=8, num_channels=1, num_classes=10)
    params = jax.tree.map(np.asarray, nn.unbox(t5x_lite.models.init_params(model, jax.random.key(0))))
    export_folder(tmp_path, model, params, teacher.tokenizer)
    statistics = {"image_mean": [0.25], "image_std": [0.75]}
    file = tmp_path / "preprocessor_config.json"
    for content, expected in (
        (statistics, ((0.25,), (0.75,))),
        (statistics | {"do_normalize": False}, ((0.0,), (1.0,))),
    ):
        file.write_text(json.dumps(content))
        objective = objective_without_text(student_of(experiment, tmp_path))
        assert (objective.frozen_model, objective.teacher_statistics) == (model, expected)
    file.write_text(json.dumps(statistics | {"image_std": [0]}))
    with pytest.raises(InputError, match="image_std=.* in preprocessor_config.json"):
        objective_without_text(student_of(experiment, tmp_path))
    file.unlink()
    with pytest.raises(InputError, match="does not say how its pictures are normalized"):
        objective_without_text(student_of(experiment, tmp_path))


@pytest.mark.slow
def test_a_teacher_of_other_classes(experiment, run, train, tmp_path):
    random = np.random.default_rng(0)
    file = tmp_path / "arrays.npz"
    np.savez(file, images=random.integers(0, 255, (40, 8, 8), np.uint8), labels=np.arange(40) % 10)
    names = tuple("abcdefghij")
    data = replace(
        experiment.data, source=ImageArrays(str(file), "images", "labels", names), held_out_source=None, held_out=0.2
    )
    with pytest.raises(InputError, match=r"has other classes \(0, 1, .*\) than the data \(a, b, .*choose a teacher"):
        train(replace(student_of(experiment, run), data=data), tmp_path / "run", report=False)
