"""`attention`, `neighbours`, `positions` and `plot`, and the rows that `inspect` draws."""

import json

import pytest

from t5x_lite.runs.recorded import short_names
from t5x_lite.training import Experiment

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def runs(experiments, tmp_path_factory):
    """Three runs as far as their figures go: two by token, one of which has no experiment."""
    folder = tmp_path_factory.mktemp("runs")
    for name, factor in (("long", 1.0), ("short", 2.0), ("bare", 3.0)):
        (folder / name).mkdir()
        records = [{"step": n, "kind": "train", "loss": factor / n, "accuracy": 0.1 * n} for n in (1, 2, 3)]
        records += [{"step": 3, "kind": "held_out", "loss": factor, "pair_loss": 0.5}]
        records += [{"step": 2, "kind": "checkpoint", "blocked_seconds": 1.0}]
        (folder / name / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
        if name != "bare":
            (folder / name / "experiment.json").write_text(experiments["bert"].to_json())
    return folder


@pytest.fixture
def drawn(monkeypatch):
    """What curves are drawn, and how."""
    import t5x_lite.pictures.drawing as room

    seen, draw = [], room.draw_curves

    def watch(curves, **options):
        seen.append((curves, options))
        return draw(curves, **options)

    monkeypatch.setattr(room, "draw_curves", watch)
    return seen


def test_plot(run, runs, drawn, tmp_path, experiments):
    status, out, err = run("plot", runs / "long", runs / "bare", "--out", tmp_path / "loss.png")
    assert (status, err) == (0, "")
    assert (tmp_path / "loss.png").read_bytes().startswith(PNG)
    assert "long: train loss 0.3333 at step 3; held-out loss 1.0000 at step 3" in out
    run("plot", runs / "long", "--figure", "accuracy", "--by", "tokens", "--out", tmp_path / "accuracy.png")
    (curves, options), (others, by_tokens) = drawn
    assert [(one.run, one.kind) for one in curves] == [
        (name, kind) for name in ("long", "bare") for kind in ("train", "held_out")
    ]
    assert curves[2].points == [(1, 3.0), (2, 1.5), (3, 1.0)]
    title = "long (Bert), bare: loss"
    assert options == {"xlabel": "step", "ylabel": "loss (nats a token)", "title": title}
    (accuracy,) = others  # there is none of the held-out rows
    tokens = experiments["bert"].batch_size * experiments["bert"].objective.layout.num_ids
    assert [x for x, _ in accuracy.points] == [tokens, 2 * tokens, 3 * tokens]
    assert by_tokens == {"xlabel": "tokens trained on", "ylabel": "accuracy", "title": "long (Bert): accuracy"}


def test_runs_have_the_shortest_names_that_tell_them_apart():
    assert short_names(("runs/a", "runs/b")) == ["a", "b"]
    assert short_names(("runs/a/1", "runs/b/1", "runs/b/2")) == ["a/1", "b/1", "b/2"]
    assert short_names(("/x/runs/a",)) == ["a"]
    assert short_names(("runs", "runs/b")) == ["runs", "b"]


PLOT_BAD = {
    "no run": ([], "run is missing; write t5x-lite plot runs/a runs/b"),
    "no metrics": (["ABSENT"], "has no metrics.jsonl with records in it; name the folder of a run that has trained"),
    "no such figure": (
        ["long", "--figure", "bleu"],
        "long has no figure 'bleu'; choose one of accuracy, loss, pair_loss",
    ),
    "no tokens": (["bare", "--by", "tokens"], "bare has no experiment.json to say how many tokens a step has"),
    "two kinds": (
        ["long", "labels"],
        "the runs' figures are of two kinds: those of long are of tokens and those of labels",
    ),
    "no picture": (["long", "--out", "a.jpg"], "out=a.jpg is not the name of a picture; choose one that ends in .png"),
}


@pytest.mark.parametrize("name", PLOT_BAD)
def test_plot_bad_input(run, runs, tmp_path, monkeypatch, name, experiments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "metrics.jsonl").write_text((runs / "long" / "metrics.jsonl").read_text())
    (tmp_path / "labels" / "experiment.json").write_text(of_labels(experiments["bert"]).to_json())
    for folder in ("long", "bare"):
        (tmp_path / folder).symlink_to(runs / folder)
    arguments, message = PLOT_BAD[name]
    status, out, err = run("plot", *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "curves.png").exists()


def of_labels(experiment: Experiment) -> Experiment:
    from dataclasses import replace

    from t5x_lite.data import JsonlFiles, LabeledTexts
    from t5x_lite.objectives import Classification

    data = replace(experiment.data, source=LabeledTexts(JsonlFiles(("absent.jsonl",)), ("text",), labels=("a", "b")))
    model = replace(experiment.model, heads=("classification",))
    return replace(experiment, model=model, objective=Classification(32), data=data)


@pytest.mark.slow
def test_attention_positions_and_neighbours_of_a_run(run, make_run, tmp_path):
    folder = make_run("bert")
    page, picture = tmp_path / "page.html", tmp_path / "head.png"
    status, out, err = run("attention", folder, "The cat stands", "and waits", "--out", page, "--layer", "1")
    assert (status, err) == (0, "")
    assert out.startswith("self: 2 layers of 3 heads, ")
    assert '"layer":1' in page.read_text()
    name = f"{folder.parent.name}/{folder.name} (Bert)"
    assert f"<title>Attention of {name}: The cat stands | and waits</title>" in page.read_text()
    assert run("attention", folder, "The cat stands", "--out", picture, "--layer", "0", "--head", "2")[0] == 0
    assert picture.read_bytes().startswith(PNG)
    assert run("positions", folder, "--out", tmp_path / "positions.png")[0] == 0
    assert (tmp_path / "positions.png").read_bytes().startswith(PNG)
    status, out, _ = run("neighbours", folder, "cat", "wall", "--k", "3")
    lines = out.splitlines()
    assert (status, lines[0], lines[4], len(lines)) == (0, "cat", "wall", 8)
    assert float(lines[1].split()[0]) >= float(lines[2].split()[0])


@pytest.mark.slow
def test_inspect_draws_its_rows(run, experiments, write_config, tmp_path):
    config = write_config(experiments["bert"], tmp_path / "config.py")
    status, _, err = run("inspect", config, "--corruption", tmp_path / "rows.png")
    assert (status, err) == (0, "")
    assert (tmp_path / "rows.png").read_bytes().startswith(PNG)
    status, out, err = run("inspect", config, "--corruption", tmp_path / "rows.pdf")
    assert (status, out, err.count("\n")) == (2, "", 1)
    status, out, err = run("inspect", config, "--picture", tmp_path / "rows.png")
    assert (status, out) == (2, "") and "draw rows of text with --corruption" in err


BAD = {
    "no text": (["attention", "RUN"], "text is missing"),
    "three texts": (["attention", "RUN", "a", "b", "c"], "there are 3 texts"),
    "no such layer": (
        ["attention", "RUN", "cat", "--layer", "2"],
        "layer=2 is not one of the self attention's; choose 0 to 1",
    ),
    "no such kind": (["attention", "RUN", "cat", "--kind", "cross"], "kind='cross' is not an attention of this model"),
    "too long": (["attention", "RUN", "cat " * 50], "and the model takes max_length=40"),
    "no folder": (["attention", "RUN", "cat", "--out", "absent/page.html"], "lies in no folder"),
    "no word": (["neighbours", "RUN"], "word is missing"),
    "too many": (["neighbours", "RUN", "cat", "--k", "999"], "k=999 is out of range"),
    "no picture": (["positions", "RUN", "--out", "positions"], "out=positions is not the name of a picture"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(run, make_run, tmp_path, monkeypatch, name):
    folder = make_run("bert")
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[name]
    status, out, err = run(*(folder if argument == "RUN" else argument for argument in arguments))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not list(tmp_path.iterdir())
