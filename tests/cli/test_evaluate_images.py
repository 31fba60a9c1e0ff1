"""Evaluation of classifiers of pictures: figures with intervals, answers as files."""

import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from t5x_lite import load
from t5x_lite.data import Data, ImageFolder, Mixture, Part
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.metrics import bootstrap
from t5x_lite.models import ViTConfig
from t5x_lite.objectives import ImageClassification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.training import Evaluation, Experiment

CLASSES = ("ant", "bee", "cat", "dog", "elk", "fox")
MODEL = ViTConfig((8, 8), 4, embed_dim=8, num_heads=2, mlp_dim=8, num_layers=1, num_classes=len(CLASSES))
OBJECTIVE = ImageClassification(Augmentation((8, 8)), (8, 8))


def write_pictures(folder, count=30, names=CLASSES, seed=0):
    random = np.random.default_rng(seed)
    for number in range(count):
        path = folder / names[number % len(names)] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (12, 12, 3), np.uint8)).save(path)
    return folder


@pytest.fixture(scope="module")
def make_run(tmp_path_factory, make_params):
    """`make_run(source, held_out_source)`: the folder of a run before its first step."""

    def make(source, held_out=None, **options):
        folder = tmp_path_factory.mktemp("run")
        data = Data(source, None, held_out_source=held_out, cache_dir=str(folder / "cache"))
        evaluation = options.pop("evaluation", Evaluation(rows=5))
        experiment = Experiment(MODEL, OBJECTIVE, data, AdamW(), steps=1, batch_size=4, evaluation=evaluation)
        params = make_params(MODEL.build(), 0, jnp.ones((1, 8, 8, 3)))
        write_checkpoint(folder / "checkpoints", 0, experiment, {}, params)
        return folder

    return make


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    return [write_pictures(root / name, seed=seed) for seed, name in enumerate(("train", "val", "other"))]


@pytest.fixture(scope="module")
def trained(make_run, folders):
    return make_run(ImageFolder(str(folders[0])), ImageFolder(str(folders[1])))


def ranks_of(folder, pictures):
    """How many classes come before that of each picture, by the name of its folder."""
    found = [[one.label for one in classes] for classes in load(folder).classify(pictures, top_k=len(CLASSES))]
    return np.array([classes.index(Path(path).parent.name) for classes, path in zip(found, pictures, strict=True)])


def test_figures_of_all_held_out_pictures_are_those_of_classify(trained, folders, run, tmp_path):
    out = tmp_path / "out"
    status, printed, error = run("evaluate", str(trained), "--out", str(out), "--json")
    assert status == 0, error
    figures = json.loads(printed)
    rows = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    pictures = [row["example"] for row in rows]
    assert set(pictures) == {str(path) for path in folders[1].rglob("*.png")} and len(pictures) == 30
    ranks = ranks_of(trained, pictures)
    assert [row["reference"] for row in rows] == [Path(path).parent.name for path in pictures]
    assert [row["prediction"] == row["reference"] for row in rows] == (ranks < 1).tolist()

    def shares(some):
        return {"accuracy": (ranks[some] < 1).mean(), "top_5_accuracy": (ranks[some] < 5).mean()}

    expected = shares(np.arange(30))
    assert 0 < expected["accuracy"] < expected["top_5_accuracy"] < 1
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    assert figures["examples"] == 30 and figures["constant_loss"] == pytest.approx(np.log(6))
    assert {name: tuple(ends) for name, ends in figures["intervals"].items()} == {
        name: pytest.approx(ends) for name, ends in bootstrap(shares, 30).items()
    }
    assert json.loads((out / "scores.json").read_text()) == figures


def test_a_sentence_with_intervals(trained, run):
    status, printed, error = run("evaluate", str(trained), "--metrics", "macro_f1", "top_5_accuracy", "--rows", "12")
    assert status == 0, error
    first, *others = printed.splitlines()
    assert "nats an example (a guess: " in first and "12 examples; top-5 accuracy " in first and ", macro F1 " in first
    assert [line.partition(" interval: ")[2].rsplit(" ", 3)[0] for line in others] == ["macro F1", "top-5 accuracy"]


def evaluated(run, *arguments):
    status, printed, error = run("evaluate", *map(str, arguments), "--json")
    assert status == 0, error
    return json.loads(printed), error


def without_intervals(figures):
    return {name: value for name, value in figures.items() if name != "intervals"}


@pytest.mark.slow
def test_other_pictures_are_numbered_as_those_of_the_run(trained, folders, run, tmp_path):
    expected, _ = evaluated(run, trained, "--images", folders[2])
    pictures = sorted(map(str, folders[2].rglob("*.png")))
    assert expected["accuracy"] == pytest.approx((ranks_of(trained, pictures) < 1).mean())
    names = [Path(path).parent.name for path in pictures]
    rows = [("image", "label"), *zip(pictures, names, strict=True)]
    (tmp_path / "table.csv").write_text("".join(f"{','.join(row)}\n" for row in rows))
    images = np.stack([np.asarray(Image.open(path)) for path in pictures])
    np.savez(tmp_path / "arrays.npz", images=images, labels=np.array([CLASSES.index(name) for name in names]))
    for other in ("table.csv", "arrays.npz"):
        found, _ = evaluated(run, trained, "--images", tmp_path / other)
        assert without_intervals(found) == pytest.approx(without_intervals(expected), rel=1e-6)
    # Two classes have no picture, and would have other numbers by themselves.
    few = write_pictures(tmp_path / "few", names=CLASSES[1:5])
    found, error = evaluated(run, trained, "--images", few)
    assert found["accuracy"] == pytest.approx((ranks_of(trained, sorted(map(str, few.rglob("*.png")))) < 1).mean())
    assert found["examples"] == 30 and found["constant_loss"] == pytest.approx(np.log(4), abs=0.01)
    _, error = evaluated(run, trained, "--images", folders[0])
    assert "30 of 30 images stand in the training data too" in error


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exported", "converted"])
def test_a_folder_from_elsewhere_prepares_pictures_as_its_file_says(kind, trained, folders, run, tmp_path):
    model, folder = load(trained), tmp_path / "model"
    replace(model, classes=CLASSES[::-1]).export(folder)
    if kind == "converted":
        assert run("convert", str(folder), str(tmp_path / "run"))[0] == 0
        folder = tmp_path / "run"
    found, _ = evaluated(run, folder, "--images", folders[2], "--out", tmp_path / "out")
    pictures = sorted(map(str, folders[2].rglob("*.png")))
    ranks = ranks_of(folder, pictures)
    assert found["accuracy"] == pytest.approx((ranks < 1).mean())
    assert found["top_5_accuracy"] == pytest.approx((ranks < 5).mean()) and set(found["intervals"]) > {"accuracy"}
    classified = map(dict, load(folder).classify(pictures, top_k=6))
    losses = [-np.log(one[Path(path).parent.name]) for one, path in zip(classified, pictures, strict=True)]
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    rows = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [row["reference"] for row in rows] == [Path(row["example"]).parent.name for row in rows]


def test_classes_of_other_names_go_by_their_order(trained, run, tmp_path):
    replace(load(trained), classes=CLASSES).export(tmp_path / "model")
    numbered = write_pictures(tmp_path / "numbered", names=[f"n{number}" for number in range(6)], seed=2)
    found, error = evaluated(run, tmp_path / "model", "--images", numbered)
    assert "classes go by their order: 'n0' is the model's 'ant', ..., 'n5' is the model's 'fox'" in error
    named = write_pictures(tmp_path / "named", seed=2)
    again, _ = evaluated(run, tmp_path / "model", "--images", named)
    # The pictures may be in another order, in which their losses are added up.
    assert again["intervals"] == found["intervals"]
    assert without_intervals(again) == pytest.approx(without_intervals(found), rel=1e-6)


def test_answers_go_by_the_pictures_that_can_be_read(make_run, folders, run, tmp_path):
    val = write_pictures(tmp_path / "val", seed=1)
    for number in (3, 17):
        path = next(val.rglob(f"{number}.png"))
        path.write_bytes(path.read_bytes()[:60])
    skipping = ImageFolder(str(val), broken="skip")
    folder = make_run(ImageFolder(str(folders[0])), skipping)
    status, _, error = run("evaluate", str(folder), "--out", str(tmp_path / "out"))
    assert status == 0 and "2 of 30 images cannot be read" in error
    rows = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert len(rows) == 28 and not {Path(row["example"]).stem for row in rows} & {"3", "17"}
    assert [row["reference"] for row in rows] == [Path(row["example"]).parent.name for row in rows]


def test_broken_pictures_are_counted_once(trained, run, tmp_path):
    val = write_pictures(tmp_path / "val", seed=1)
    next(val.rglob("3.png")).write_bytes(b"")
    status, _, error = run("evaluate", str(trained), "--images", str(val))
    assert status == 2 and "1 of 30 images cannot be read (1 empty): " in error
    assert error.endswith("3.png (empty (0 bytes)); replace or remove them\n")


@pytest.mark.slow
def test_of_a_mixture_each_part_has_its_figures_and_answers(make_run, folders, run, tmp_path):
    parts = (("one", folders[0], folders[1]), ("two", folders[1], folders[2]))
    source = Mixture(tuple(Part(name, *(ImageFolder(str(one)) for one in sides)) for name, *sides in parts))
    status, printed, error = run("evaluate", str(make_run(source)), "--out", str(tmp_path / "out"), "--json")
    assert status == 0, error
    figures = json.loads(printed)
    assert set(figures["intervals"]) == {f"{n}/{f}" for n in ("one", "two") for f in ("accuracy", "top_5_accuracy")}
    shares = [figures[name] for name in figures["intervals"]]
    assert figures["average_score"] == pytest.approx(np.mean(shares)) and figures["examples"] == 60
    for name, _, held_out in parts:
        rows = [json.loads(line) for line in (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()]
        assert {Path(row["example"]).parents[1] for row in rows} == {held_out} and len(rows) == 30


WRONG = {
    "a flat folder": ("ant", "has pictures and no folders of classes; put those of each class into a folder of its"),
    "other classes": ("strange", "has folders that class_names does not name: yak; it names ant, bee, cat, dog, elk,"),
    "nothing": ("nowhere", "does not exist"),
    "one": ("single", "has one class ('ant'), of which there is nothing to learn; give pictures of two or more"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_pictures_end_in_a_sentence(name, make_run, folders, trained, run, tmp_path):
    (tmp_path / "ant").symlink_to(folders[1] / "ant")
    write_pictures(tmp_path / "strange", names=("ant", "yak"))
    write_pictures(tmp_path / "single", names=("ant",))
    path, sentence = WRONG[name]
    if name == "one":  # a run knows its classes
        load(trained).export(tmp_path / "model")
        trained = tmp_path / "model"
    status, _, error = run("evaluate", str(trained), "--images", str(tmp_path / path))
    assert status == 2 and sentence in error and len(error.strip().splitlines()) == 1, error


def test_wrong_options_end_in_a_sentence(trained, folders, run, tmp_path):
    load(trained).export(tmp_path / "model")
    few = write_pictures(tmp_path / "few", names=("yak", "zebu"))
    cases = (
        ((tmp_path / "model",), "is not a run, and came without data; give --images"),
        ((tmp_path / "model", "--images", few), "the 2 classes yak, zebu, and the model 6: ant, bee, cat, dog, elk, "),
        ((trained, "--examples", "x.tsv"), "this config has ImageFolder; give --images to evaluate"),
        ((trained, "--metrics", "bleu"), "'bleu', which ImageClassification has no answers for; choose among acc"),
        ((trained, "--submission", "glue", "--out", "x"), "for the answers of ImageClassification; choose jsonl"),
    )
    for arguments, sentence in cases:
        status, _, error = run("evaluate", *map(str, arguments))
        assert status == 2 and sentence in error and len(error.strip().splitlines()) == 1, error
