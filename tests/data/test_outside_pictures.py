"""What a stranger adds in one file: a source of pictures, a layout with an image column, a model and an objective."""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from PIL import Image

from t5x_lite import load
from t5x_lite.cli import main
from t5x_lite.data import Column, Layout, RowSpec, Source, prepare
from t5x_lite.data.layouts.base import Row, decode_image
from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig
from t5x_lite.objectives import Objective

SIZE, HUES = 6, ("red", "green", "blue")


@dataclass(frozen=True)
class Squares(Source):
    """Pictures of one colour and noise, as PNG files, named by their colour."""

    count: int = 96

    def documents(self) -> Iterator[tuple[bytes, int]]:
        for number in range(self.count):
            random, hue = np.random.default_rng(number), number % 3
            pixels = random.integers(0, 100, (SIZE, SIZE, 3), np.uint8)
            pixels[..., hue] += 120
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "PNG")
            yield file.getvalue(), hue

    def fingerprint(self) -> str:
        return hashlib.blake2b(f"Squares {self.count}".encode()).hexdigest()


@dataclass(frozen=True)
class Pictures(Layout):
    """A picture a row, its colour, and columns of other types."""

    source_type = Squares
    unit_name = "pictures"

    @property
    def spec(self) -> RowSpec:
        return {
            "image": Column((SIZE, SIZE, 3), np.uint8, encoding="image"),
            "hue": Column(()),
            "box": Column((4,), np.float32),
            "mask": Column((2, 3), np.bool_),
        }

    def content(self, example: tuple[bytes, int]) -> bytes:
        return example[0]

    def tokenize(self, examples: list, tokenizer: Any, sentences: Any) -> Iterator[list[Row]]:
        for file, hue in examples:
            box, mask = np.linspace(0, hue, 4, dtype=np.float32), np.arange(6).reshape(2, 3) % (hue + 1) == 0
            yield [{"image": file, "hue": hue, "box": box, "mask": mask}]


class Linear(nn.Module):
    """Logits [B 3] of pictures [B H W 3] of numbers from 0 to 1."""

    @nn.compact
    def __call__(self, pictures: Any) -> Any:
        init = nn.with_logical_partitioning(nn.initializers.lecun_normal(), ("embed", "mlp"))
        return pictures.reshape(len(pictures), -1) @ self.param("kernel", init, (SIZE * SIZE * 3, 3))


@dataclass(frozen=True)
class LinearConfig(ModelConfig):
    def abstract_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, SIZE, SIZE, 3), jnp.float32),)

    def build(self, **options: Any) -> nn.Module:
        return Linear()


@dataclass(frozen=True)
class Colour(Objective):
    """Which colour a picture has; half of the pictures are mirrored."""

    unit = "example"
    scale: float = 255.0

    @cached_property
    def layout(self) -> Layout:
        return Pictures()

    def corrupt(self, key: Any, row: Row) -> dict[str, Any]:
        self.check_row(row)
        picture = row["image"] / self.scale
        return {
            "picture": jnp.where(jax.random.bernoulli(key), picture[:, ::-1], picture),
            "targets": row["hue"],
            "weight": row["mask"].any() * jnp.ones(()),
        }

    def loss(self, module, params, features, key, *, whole=None, frozen=None):
        logits = module.apply({"params": params}, features["picture"])
        losses = -jax.nn.log_softmax(logits)[jnp.arange(len(logits)), features["targets"]]
        weights = features["weight"] * features.get("valid", 1.0)
        correct = (logits.argmax(-1) == features["targets"]) * weights
        return (losses * weights).sum(), weights.sum(), {"loss": (losses * weights).sum(), "accuracy": correct.sum()}

    def predict(self, module, params, features):
        return module.apply({"params": params}, features["picture"]).argmax(-1)

    def baseline_loss(self, features, model) -> float:
        return float(np.log(3))


CONFIG = """
from {module} import Colour, LinearConfig, Squares
from t5x_lite.data import Data
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant
from t5x_lite.training import Experiment

experiment = Experiment(
    LinearConfig(),
    Colour(),
    Data(Squares(), tokenizer=None, held_out=0.25),
    AdamW(schedule=Constant(0.05)),
    steps=12,
    batch_size=8,
)
"""


def test_columns_of_every_type_are_stored_and_read_back(tmp_path):
    layout = Pictures()
    store = prepare(Squares(), None, layout, held_out=0.25, cache_dir=tmp_path)
    assert store.tokenizer is None and len(store.train) + len(store.held_out) == 96
    files = dict(Squares().documents())
    pixels = {np.asarray(Image.open(io.BytesIO(file))).tobytes(): hue for file, hue in files.items()}
    for row in [*store.train[:], *store.held_out[:]]:
        assert {name: (x.shape, x.dtype) for name, x in row.items()} == {
            name: (column.shape, np.dtype(column.dtype)) for name, column in layout.spec.items()
        }
        hue = pixels[row["image"].tobytes()]
        assert row["hue"] == hue
        np.testing.assert_array_equal(row["box"], np.linspace(0, hue, 4, dtype=np.float32))
        np.testing.assert_array_equal(row["mask"], np.arange(6).reshape(2, 3) % (hue + 1) == 0)


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("outside") / "colours.py"
    path.write_text(CONFIG.format(module=__name__))
    return path


def test_a_run_without_text_learns_resumes_and_is_evaluated(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("T5X_LITE_CACHE", str(tmp_path / "cache"))
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    assert main(["train", str(config), "--workdir", str(whole)]) == 0
    for steps in ("6", "12"):
        assert main(["train", str(config), "--workdir", str(resumed), "--steps", steps]) == 0
    shown = capsys.readouterr().out
    assert "resuming from step 6" in shown and "rows/s" in shown and "tokens" not in shown
    figures = json.loads((whole / "held_out.json").read_text())
    assert figures["loss"] < 0.7 * figures["constant_loss"]
    assert json.loads((resumed / "held_out.json").read_text()) == figures
    assert "float32[6, 6, 3]" in (whole / "samples.txt").read_text()
    kernels = [load(run).params["kernel"] for run in (whole, resumed)]
    np.testing.assert_array_equal(*kernels)
    assert main(["evaluate", str(whole), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["loss"] == pytest.approx(figures["loss"], abs=1e-6)


@pytest.mark.parametrize("content, named", [(b"no picture", "picture"), (None, "resize")])
def test_bytes_that_are_no_picture_of_the_shape_end_in_a_sentence(content, named):
    if content is None:
        file = io.BytesIO()
        Image.new("RGB", (3, 5)).save(file, "PNG")
        content = file.getvalue()
    with pytest.raises(InputError, match=named):
        decode_image(content, Pictures().spec["image"])
