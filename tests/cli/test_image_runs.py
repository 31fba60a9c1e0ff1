"""A config of pictures: `inspect`, `prepare` and `train` with a linear classifier."""

import json

import numpy as np
import pytest
from PIL import Image

from t5x_lite import load
from t5x_lite.cli import main

CONFIG = """
from dataclasses import dataclass
from functools import cached_property
import jax, jax.numpy as jnp, numpy as np
from flax import linen as nn
from t5x_lite import Experiment
from t5x_lite.data import Data, Digits, ImageFolder, Images
from t5x_lite.models import ModelConfig
from t5x_lite.objectives import Objective
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant

class Linear(nn.Module):
    @nn.compact
    def __call__(self, images):
        init = nn.with_logical_partitioning(nn.initializers.zeros, ("embed", "mlp"))
        return images.reshape(len(images), -1) @ self.param("kernel", init, (64, 10))

@dataclass(frozen=True)
class LinearConfig(ModelConfig):
    def abstract_inputs(self):
        return (jax.ShapeDtypeStruct((1, 8, 8, 1), jnp.float32),)
    def build(self, **options):
        return Linear()

@dataclass(frozen=True)
class Classify(Objective):
    unit = "example"
    labels: bool = True
    @cached_property
    def layout(self):
        return Images(8, 8, channels=1, labels=self.labels)
    def check_labels(self, model, labels):
        if labels and len(labels) > 10:
            from t5x_lite.errors import InputError
            raise InputError(f"model has 10 classes and the data {len(labels)}; choose others")
    def corrupt(self, key, row):
        return {"picture": row["image"] / 255.0, "targets": row["label"] if self.labels else row["size"][0]}
    def loss(self, module, params, features, key, *, whole=None, frozen=None):
        logits = module.apply({"params": params}, features["picture"])
        losses = -jax.nn.log_softmax(logits)[jnp.arange(len(logits)), features["targets"]]
        weights = features.get("valid", 1.0) * jnp.ones(len(losses))
        return (losses * weights).sum(), weights.sum(), {"loss": (losses * weights).sum()}
    def predict(self, module, params, features):
        return module.apply({"params": params}, features["picture"]).argmax(-1)
    def baseline_loss(self, features, model):
        return float(np.log(10))

experiment = Experiment(LinearConfig(), Classify(LABELS), Data(SOURCE, None, held_out=0.2), AdamW(Constant(0.01)),
                        steps=20, batch_size=32)
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """`run(*arguments)`: (status, what a command prints, what it complains of)."""
    monkeypatch.setenv("T5X_LITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments):
        status = main([*map(str, arguments)])
        return status, *capsys.readouterr()

    return command


def write_config(path, source, labels=True):
    path.write_text(CONFIG.replace("SOURCE", source).replace("LABELS", str(labels)))
    return path


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / "pictures" / ("cat", "dog")[number % 4 == 0] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (20, 30 + number), np.uint8)).save(path)
    return tmp_path / "pictures"


def test_inspect_shows_classes_sizes_and_rows(run, folder, tmp_path):
    config = write_config(tmp_path / "config.py", f"ImageFolder({str(folder)!r})")
    status, out, err = run("inspect", config)
    assert status == 0, err
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "split images left out encoded anew rows" in lines
    totals = {line.split()[0]: list(map(int, line.split()[1:])) for line in lines if line[:5] in ("train", "held-")}
    assert totals["train"][0] + totals["held-out"][0] == 40 and totals["train"][3] == totals["train"][0]
    of_class = {line.split()[1]: sum(map(int, line.split()[2:])) for line in lines if line[2:5] in ("cat", "dog")}
    assert of_class == {"cat": 30, "dog": 10}
    assert "16 to 31" in out and "32 x 8 x 8 x 1" in out
    assert out.count("pixels, stretched to 8 x 8, from ") == 3 and "label 0: cat" in out
    assert "tokens" not in out and "padding" not in out


@pytest.mark.slow
def test_prepare_train_and_speed(run, tmp_path):
    config = write_config(tmp_path / "config.py", "Digits()")
    status, out, err = run("prepare", config, "--out", tmp_path / "out", "--workers", "2")
    assert status == 0, err
    assert "rows of 1," in out and " images\n" in out and "tokens" not in out
    status, out, err = run("train", config, "--workdir", tmp_path / "run", "--data.prepared", tmp_path / "out")
    assert status == 0, err
    assert "images/s" in out and "rows/s" not in out and "images per second" not in out
    figures = json.loads((tmp_path / "run" / "held_out.json").read_text())
    assert figures["loss"] < 0.7 * figures["constant_loss"]
    assert json.loads((tmp_path / "run" / "store.json").read_text())["classes"] == list("0123456789")


def test_broken_pictures_end_a_command_before_the_first_step(run, folder, tmp_path):
    (folder / "cat" / "1.png").write_bytes(b"")
    config = write_config(tmp_path / "config.py", f"ImageFolder({str(folder)!r})")
    status, _, err = run("train", config, "--workdir", tmp_path / "run")
    assert status == 2 and "1 of 40 images cannot be read (1 empty): " in err
    assert "cat/1.png (empty (0 bytes)); replace or remove" in err
    assert not (tmp_path / "run").exists()
    status, out, err = run("inspect", config, "--data.source.broken", "skip")
    assert status == 0 and "1 of 40 images" not in err and "they are left out" in out


def test_pictures_without_labels(run, folder, tmp_path):
    flat = f"ImageFolder({str(folder / 'cat')!r})"
    status, out, err = run("inspect", write_config(tmp_path / "unlabeled.py", flat, labels=False))
    assert status == 0, err
    assert "label " not in out and "class " not in out
    status, _, err = run("inspect", write_config(tmp_path / "config.py", flat))
    assert status == 2 and "data.source has no labels to learn" in err


def test_more_classes_than_the_model_has(run, folder, tmp_path):
    for number in range(10):
        (folder / f"class {number}").mkdir()
        (folder / f"class {number}" / "x.png").write_bytes((folder / "cat" / "1.png").read_bytes())
    config = write_config(tmp_path / "config.py", f"ImageFolder({str(folder)!r})")
    status, _, err = run("inspect", config)
    assert status == 2 and "model has 10 classes and the data 12" in err


VIT = """
from t5x_lite import Experiment
from t5x_lite.data import Data, ImageFolder
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import ViTConfig
from t5x_lite.objectives.image_classification import ImageClassification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant

experiment = Experiment(
    ViTConfig((8, 8), 4, embed_dim=8, num_heads=2, mlp_dim=8, num_layers=1, num_classes=2),
    ImageClassification(Augmentation(image_size=(8, 8)), canvas_size=(10, 10)),
    Data(ImageFolder(FOLDER), None, held_out=0.2), AdamW(Constant(0.01)), steps=2, batch_size=8,
)
"""


@pytest.mark.slow
def test_inspect_draws_rows_and_augmented_copies(run, folder, tmp_path):
    config = tmp_path / "config.py"
    config.write_text(VIT.replace("FOLDER", repr(str(folder))))
    status, out, err = run("inspect", config, "--picture", tmp_path / "rows.png")
    assert (status, err) == (0, "") and "label 0: cat" in out
    assert Image.open(tmp_path / "rows.png").size[0] > 900
    status, out, err = run("inspect", config, "--picture", tmp_path / "rows.jpg")
    assert (status, out, err.count("\n")) == (2, "", 1)


@pytest.mark.slow
def test_a_model_knows_the_classes_of_a_folder_that_is_gone(run, folder, tmp_path):
    config = tmp_path / "config.py"
    config.write_text(VIT.replace("FOLDER", repr(str(folder))))
    status, out, err = run("train", config, "--workdir", tmp_path / "run")
    assert status == 0, err
    assert "images/s" in out and not (tmp_path / "run" / "samples.png").exists()
    folder.rename(tmp_path / "elsewhere")
    model = load(tmp_path / "run")
    assert (model.classes, model.tokenizer) == (("cat", "dog"), None)
    classes = tmp_path / "run" / "tokenizer" / "classes.json"
    assert json.loads(classes.read_text()) == ["cat", "dog"]
