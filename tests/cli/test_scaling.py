"""`scaling run` and `scaling fit`: the grid, the laws that are printed, the picture."""

import json
import shlex

import numpy as np
import pytest

from t5x_lite.scaling import ChinchillaLaw
from t5x_lite.training import Experiment

CONFIG = """
from t5x_lite import Experiment

experiment = Experiment.from_json({json!r})
"""
LAW = ChinchillaLaw(E=1.7, A=400.0, B=2000.0, alpha=0.34, beta=0.37)


@pytest.fixture
def config(tiny, tmp_path):
    (tmp_path / "tiny.py").write_text(CONFIG.format(json=tiny.to_json()))
    return tmp_path / "tiny.py"


@pytest.fixture
def table(tmp_path):
    random = np.random.default_rng(0)
    sizes, flops = np.meshgrid(np.geomspace(1e8, 2e10, 6), np.geomspace(1e19, 1e21, 4))
    tokens = flops / (6 * sizes)
    losses = LAW.loss(sizes, tokens, flops) * np.exp(1e-3 * random.normal(size=sizes.shape))
    rows = zip(*(array.ravel().tolist() for array in (sizes, tokens, losses)), strict=True)
    path = tmp_path / "measured.csv"
    path.write_text("parameters,tokens,loss\n" + "".join(f"{n},{d},{loss}\n" for n, d, loss in rows))
    return path


@pytest.mark.slow
def test_fit(run, table, tmp_path):
    picture, figures = tmp_path / "laws.png", tmp_path / "laws.json"
    status, out, err = run(
        "scaling", "fit", table, "--flops", "1e22", "--draws", "5", "--out", picture, "--json", figures
    )
    assert status == 0, err
    assert "24 runs: N 100M to 20G" in out and "compute: C = 6 N D" in out
    assert "L(N, D) = E + A / N^alpha + B / D^beta, 24 measurements" in out
    assert "10Z" not in out and "1e+22 floating-point operations are spent best on" in out
    assert "of the 12 runs of less compute predicts the 12 others with a mean error of 0." in out
    assert "approach 1 compares learning curves" in out
    assert picture.read_bytes()[:4] == b"\x89PNG"
    found = json.loads(figures.read_text())
    constants = found["laws"][LAW.formula]["constants"]
    assert constants["E"] == pytest.approx(LAW.E, rel=0.02) and constants["alpha"] == pytest.approx(0.34, rel=0.05)
    assert found["exponents"]["3, L(N, D)"]["a"] == pytest.approx(LAW.exponents()[0], rel=0.05)
    options = ("--draws", "0", "--drop-highest", "3", "--out", picture, "--json", figures)
    status, out, err = run("scaling", "fit", table, *options)
    assert (status, out.startswith("21 runs")) == (0, True), err
    assert json.loads(figures.read_text())["laws"][LAW.formula]["intervals"] == {}


@pytest.mark.slow
def test_run_trains_and_fit_reads(run, config, tmp_path):
    options = ("--sizes", "16x1", "24x1", "--tokens", "2k", "4k", "--workdir", tmp_path / "grid")
    status, out, err = run("scaling", "run", config, *options, "--commands")
    assert status == 0, err
    commands = [shlex.split(line) for line in out.splitlines()]
    assert [command[-1].rpartition("/")[2] for command in commands] == ["16x1_2k", "24x1_2k", "16x1_4k", "24x1_4k"]
    parts = [run("scaling", "run", config, *options, "--commands", "--part", f"{part}/2")[1] for part in (1, 2)]
    assert sorted("".join(parts).splitlines()) == sorted(out.splitlines())
    assert not (tmp_path / "grid").exists()

    options = ("--sizes", "16x1", "--tokens", "2k", "--workdir", tmp_path / "grid")
    status, out, err = run("scaling", "run", config, *options)
    assert status == 0, err
    assert "16x1_2k" in out and "their laws: t5x-lite scaling fit" in out
    trained = Experiment.from_json((tmp_path / "grid" / "16x1_2k" / "experiment.json").read_text())
    assert (trained.model.embed_dim, trained.model.num_encoder_layers) == (16, 1)
    status, out, err = run("scaling", "run", config, *options)
    assert (status, out.count("complete already")) == (0, 1)
    status, _, err = run("scaling", "fit", tmp_path / "grid" / "16x1_2k", "--out", tmp_path / "x.png")
    assert status == 2 and "1 runs have no law" in err and not (tmp_path / "x.png").exists()


BAD = {
    "no command": (["fitt"], "scaling fitt is not known; choose run or fit"),
    "no sizes": (["run", "CONFIG", "--tokens", "1k"], "--sizes is missing"),
    "no amount": (["run", "CONFIG", "--sizes", "16x1"], "one of --tokens and --flops is needed"),
    "two amounts": (["run", "CONFIG", "--sizes", "16x1", "--tokens", "1k", "--flops", "1G"], "and not both"),
    "a bad size": (["run", "CONFIG", "--sizes", "16", "--tokens", "1k"], "'16', which is not WIDTHxDEPTH"),
    "one twice": (["run", "CONFIG", "--sizes", "16x1", "16x1", "--tokens", "1k"], "name one twice"),
    "a bad part": (["run", "CONFIG", "--sizes", "16x1", "--tokens", "1k", "--part", "3/2"], "--part=3/2 is not I/N"),
    "a bad field": (["run", "CONFIG", "--sizes", "16x1", "--tokens", "1k", "--sead", "3"], "sead"),
    "no run": (["fit"], "run is missing"),
    "a bad share": (["fit", "TABLE", "--confidence", "1"], "confidence=1.0 is not between 0 and 1"),
    "too few": (["fit", "TABLE", "--drop-highest", "24"], "drop_highest=24 leaves none of 24 runs"),
    "no folder": (["fit", "nowhere"], "nowhere has no metrics.jsonl"),
    "bad compute": (["fit", "TABLE", "--flops", "much"], "--flops has 'much'"),
    "no folder for figures": (["fit", "TABLE", "--json", "nowhere/x.json"], "json=nowhere/x.json lies in no folder"),
    "no picture": (["fit", "TABLE", "--out", "x.gif"], "out"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(run, config, table, case):
    arguments, message = BAD[case]
    given = [{"CONFIG": config, "TABLE": table}.get(argument, argument) for argument in arguments]
    if "CONFIG" in arguments:
        given += ["--workdir", config.parent / "grid"]
    status, _, err = run("scaling", *given)
    assert status == 2
    assert message in err
    assert not (config.parent / "grid").exists()
