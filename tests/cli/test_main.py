"""The command line, in the process of the test: what it prints, and what it says to bad input."""

import importlib
import itertools
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_lite.cli import main
from t5x_lite.cli.arguments import parse
from t5x_lite.cli.main import find_commands, import_modules
from t5x_lite.objectives import SpanCorruption

CONFIG = """
from t5x_lite import Experiment
from t5x_lite.data import Bytes, Data, TextFiles
from t5x_lite.models import T5Config
from t5x_lite.objectives import SpanCorruption
from t5x_lite.training import Checkpointing, Evaluation
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import Constant

experiment = Experiment(
    model=T5Config(vocab_size=264, embed_dim=16, num_heads=4, head_dim=4, mlp_dim=24, num_encoder_layers=1,
                   num_decoder_layers=2, gated=True, tied=False, dropout_rate=0.1),
    objective=SpanCorruption(input_length=24),
    data=Data(TextFiles(({corpus!r},)), Bytes(), held_out=0.1, cache_dir={cache!r}),
    optimizer=AdamW(Constant(3e-3), clip_norm=1.0),
    steps=2,
    batch_size=8,
    evaluation=Evaluation(rows=10),
)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A text, a config that reads it, and an empty cache."""
    folder = tmp_path_factory.mktemp("cli")
    lines = [f"{number} green bottles hanging on the wall number {number * 7}" for number in range(300)]
    (folder / "text.txt").write_text("\n".join(lines))
    (folder / "config.py").write_text(CONFIG.format(corpus=str(folder / "text.txt"), cache=str(folder / "cache")))
    return folder


@pytest.fixture(scope="module")
def trained(folder) -> Path:
    assert main(["train", str(folder / "config.py"), "--workdir", str(folder / "run"), "--steps", "1"]) == 0
    return folder / "run"


def test_usage_names_every_command(run):
    status, out, _ = run("--help")
    assert status == 0
    for command in find_commands():
        (line,) = (line for line in out.splitlines() if line.startswith(f"  {command} "))
        assert re.fullmatch(r"  \S.*?  +\S.*", line) and len(line) <= 120, "usage and summary stand apart"
        status, help_text, _ = run(command, "--help")
        assert status == 0
        assert "usage: t5x-lite" in help_text


class Parsed(Exception):
    """A command line was understood."""


@pytest.mark.parametrize("command", find_commands())
def test_the_examples_of_the_help_are_command_lines(run, monkeypatch, command):
    monkeypatch.chdir(Path(__file__).parents[2])
    status, out, _ = run(command, "--help")
    lines = [line.strip() for line in out.partition("examples:\n")[2].splitlines()]
    lines = [shlex.split(line) for line in itertools.takewhile(bool, lines)]
    assert status == 0 and 1 <= len(lines) <= 3
    assert max(map(len, out.splitlines())) <= 120

    def parse_only(*arguments, **options):
        parse(*arguments, **options)
        raise Parsed

    module = importlib.import_module(f"t5x_lite.cli.commands.{find_commands()[command][0]}")
    monkeypatch.setattr(module, "parse", parse_only)
    for program, name, *arguments in lines:
        assert (program, name) == ("t5x-lite", command)
        with pytest.raises(Parsed):
            getattr(module, command)(arguments)


def test_help_of_a_config_lists_the_fields_with_their_values(run, folder):
    status, out, _ = run("train", folder / "config.py", "--help")
    assert status == 0
    for option in ("--workdir", "--objective.noise-density", "--model.num-heads", "--mesh.fsdp", "--steps"):
        assert option in out
    assert "--objective.vocabulary" not in out, "the tokenizer says it, not the user"
    assert "(default: 0.15)" in out


def test_train_evaluate_generate(run, folder, trained):
    # Overrides are part of the run: the same command goes on, with more steps.
    status, out, err = run("train", folder / "config.py", "--workdir", trained)
    assert (status, err) == (0, "")
    assert "resuming from step 1" in out
    assert "step 2/2" in out
    status, out, _ = run("evaluate", trained)
    assert status == 0
    assert all(word in out for word in ("loss", "accuracy", "perplexity", "unigram"))
    status, out, _ = run("evaluate", trained, "--json", "--rows", "3", "--text", folder / "text.txt")
    assert status == 0
    figures = json.loads(out)
    assert figures["tokens"] == 3 * SpanCorruption(input_length=24).target_length
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]))
    assert 0.0 < figures["unigram_loss"] < math.log(259)
    status, out, _ = run("generate", trained, "7 green <extra_id_0> on the wall", "--max-length", "5")
    assert status == 0
    assert out.count("\n") == 1


@pytest.mark.slow
def test_convert_there_and_back(run, trained, folder, tmp_path):
    import numpy as np

    import t5x_lite

    assert run("convert", trained, tmp_path / "theirs")[0] == 0
    assert run("convert", tmp_path / "theirs", tmp_path / "ours")[0] == 0
    ids = np.array([[5, 6, 7, 1]])
    models = [t5x_lite.load(path) for path in (trained, tmp_path / "theirs", tmp_path / "ours")]
    expected, *others = [np.asarray(model(ids, ids)) for model in models]
    for logits in others:
        np.testing.assert_array_equal(logits, expected)
    assert models[2].generate("7 green", max_length=4) == models[0].generate("7 green", max_length=4)
    status, _, err = run("convert", trained, tmp_path / "theirs")
    assert status == 2
    assert "not empty" in err
    on_text = ("--json", "--rows", "3", "--text", folder / "text.txt")
    figures = [json.loads(run("evaluate", tmp_path / name, *on_text)[1]) for name in ("theirs", "ours")]
    assert figures[0] == figures[1] and figures[0]["tokens"] == 3 * SpanCorruption().target_length
    status, _, err = run("evaluate", tmp_path / "theirs")
    assert status == 2 and "theirs is not a run, and came without data; give --text or --pairs" in err


def test_inspect_shows_parameters_shapes_and_rows(run, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = run("inspect", folder / "config.py")
    assert status == 0
    tree = r"^ encoder +\n   final_norm/scale .*\n   layers +\n     feed_forward +\n       \w+/kernel "
    assert re.search(tree, out, re.MULTILINE)
    assert "layers, embed, mlp" in out
    assert "8 x 24" in out
    assert out.count("  row\n") >= 3
    assert "<extra_id_0>" in out


BAD = {
    "no command": (["paint"], "command 'paint' is not known"),
    "unknown override": (
        ["train", "CONFIG", "--objective.noise-densty", "0.3"],
        "perhaps you meant --objective.noise-density",
    ),
    "name of another program": (
        ["train", "CONFIG", "--learning-rate", "1e-3"],
        "perhaps you meant --optimizer.schedule.rate (see",
    ),
    "a letter less": (["train", "CONFIG", "--step", "3"], "perhaps you meant --steps (see"),
    "dashes": (["fill-mask"], "Missing from t5x-lite fill_mask: RUN"),
    "wrong type": (["train", "CONFIG", "--steps", "many"], "--steps"),
    "out of range": (
        ["train", "CONFIG", "--objective.noise-density", "1.5"],
        "noise_density=1.5 is not in (0, 1)",
    ),
    "no such choice": (["train", "CONFIG", "--remat", "sometimes"], "--remat"),
    "batch and copies": (
        ["train", "CONFIG", "--data.augmentation-repeats", "9"],
        "data.augmentation_repeats=9 exceeds batch_size=8",
    ),
    "batch and parts": (["train", "CONFIG", "--accumulation", "3"], "accumulation=3 does not divide batch_size=8"),
    "devices": (["train", "CONFIG", "--mesh.data", "5"], "mesh data=5"),
    "missing config": (["train", "absent.py"], "config absent.py is not a file"),
    "option for config": (["train", "--steps", "3"], "stands where the config belongs"),
    "missing text": (["train", "CONFIG", "--text", "absent.txt"], "absent.txt"),
    "empty text": (["train", "CONFIG", "--text", "EMPTY"], "empty"),
    "no UTF-8": (["train", "CONFIG", "--text", "LATIN"], "UTF-8"),
    "too little text": (["train", "CONFIG", "--text", "SHORT"], "row"),
    "spans over sentinels": (
        ["train", "CONFIG", "--objective.input-length", "700", "--objective.mean-span-length", "1"],
        "sentinels",
    ),
    "no run": (["evaluate", "FOLDER"], "holds no checkpoint"),
    "no such run": (["generate", "absent/run/at/all", "text"], "is neither a folder here"),
    "a sentinel too many": (["generate", "RUN", "a <extra_id_500>"], "extra_id_500"),
    "no text": (["generate", "RUN"], "text is missing"),
    "no encoder alone": (["fill_mask", "RUN", "a [MASK]"], "a T5Config has no fill_mask; use generate"),
    "max length": (["generate", "RUN", "a", "--max-length", "0"], "max_length=0"),
    "rows": (["evaluate", "RUN", "--rows", "0"], "rows=0"),
    "onto a file": (["convert", "RUN", "CONFIG"], "is a file"),
    "half an address": (
        ["train", "CONFIG", "--coordinator", "localhost:1"],
        "do not say which process this is; give all",
    ),
    "no port": (
        ["train", "CONFIG", "--coordinator", "localhost", "--num-processes", "2", "--process-id", "1"],
        "coordinator='localhost' is not a valid HOST:PORT",
    ),
    "no coordinator there": (
        [
            *("train", "CONFIG", "--coordinator", "localhost:1", "--num-processes", "2", "--process-id", "1"),
            *("--join-timeout", "1"),
        ],
        "coordinator=localhost:1 cannot be reached",
    ),
    "a missing process": (
        [
            *("train", "CONFIG", "--coordinator", "localhost:17617", "--num-processes", "2", "--process-id", "0"),
            *("--join-timeout", "1"),
        ],
        "1 of 2 processes did not come to localhost:17617 within 1 s: process 1;",
    ),
    "no steps of a profile": (
        ["train", "CONFIG", "--profile", "10"],
        "profile='10' is not START:STEPS; give",
    ),
    "steps beyond the run": (
        ["train", "CONFIG", "--profile", "2:5"],
        "profile=2:5 means steps 2 to 6, and the run",
    ),
    "status of no run": (["status", "FOLDER"], "is not the folder of a run (it lacks experiment.json or store.json)"),
    "status of nothing": (["status", "absent"], "absent is not the folder of a run"),
    "status of a file": (["status", "CONFIG"], "is not the folder of a run"),
    "no number of processes": (["train", "CONFIG", "--local-processes", "0"], "local_processes=0 is too small"),
    "two ways to start": (
        ["train", "CONFIG", "--local-processes", "2", "--coordinator", "localhost:1"],
        "--local-processes and --coordinator are two ways to start",
    ),
    "no workdir": (["train", "CONFIG", "--workdir", ""], "workdir='' is not the name of a folder; give one"),
    "a NUL": (["train", "CONFIG", "--workdir", "a\0b"], r"argument 'a\x00b' has a NUL in it"),
    "a NUL in a config": (["train", "NUL"], "is not the name of a folder; give one"),
    "workdir in a file": (["train", "CONFIG", "--workdir", "CONFIG"], "file; choose a folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(run, folder, trained, tmp_path, name):
    files = {"EMPTY": b"", "LATIN": "caf\xe9 ".encode("latin-1") * 500, "SHORT": b"one\ntwo\nthree\n"}
    for file, content in files.items():
        (tmp_path / f"{file}.txt").write_bytes(content)
    places = {file: tmp_path / f"{file}.txt" for file in files}
    places["NUL"] = tmp_path / "nul.py"
    places["NUL"].write_text((folder / "config.py").read_text().replace("/cache'", "/ca\\0che'"))
    places |= {"CONFIG": folder / "config.py", "RUN": trained, "FOLDER": tmp_path}
    arguments, expected = BAD[name]
    workdir = [] if arguments[0] != "train" or "--workdir" in arguments else ["--workdir", tmp_path / "run"]
    before = (trained / "experiment.json").read_bytes()
    status, _, err = run(*(places.get(argument, argument) for argument in arguments), *workdir)
    assert status == 2
    assert err.startswith("t5x-lite: ")
    assert expected in err
    assert err.count("\n") == 1, "one sentence on one line"
    assert "Traceback" not in err
    assert (trained / "experiment.json").read_bytes() == before
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("experiment = 3", "binds `experiment` to a int"),
        ("x = 1", "binds no name `experiment`"),
        ("def broken(:", "fails at line 1 (SyntaxError"),
        ("\nimport nothing_of_the_kind", "fails at line 2 (ModuleNotFoundError"),
        ("from t5x_lite.models import T5Config\nT5Config(num_heads=0)", "num_heads=0 is too small"),
    ],
)
def test_a_config_that_is_none(run, tmp_path, source, expected):
    (tmp_path / "config.py").write_text(source)
    status, _, err = run("train", tmp_path / "config.py")
    assert status == 2
    assert expected in err


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device", "x.zarr"), ValueError("UNKNOWN: Error writing: No space left on device")],
)
def test_a_full_disk_keeps_what_was_saved(run, folder, trained, tmp_path, monkeypatch, error):
    """Orbax reports a full disk in either way; the second comes from TensorStore."""
    from t5x_lite.runs.checkpoints import Checkpoints

    workdir = tmp_path / "run"
    shutil.copytree(trained, workdir)
    before = max(int(step.name) for step in (workdir / "checkpoints").iterdir())

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(Checkpoints, "save", fail)
    status, _, err = run("train", folder / "config.py", "--workdir", workdir, "--steps", "5")
    assert status == 2
    assert "the disk is full" in err
    assert err.count("\n") == 1
    assert max(int(step.name) for step in (workdir / "checkpoints").iterdir()) == before
    assert run("generate", workdir, "7 green <extra_id_0>", "--max-length", "5")[0] == 0


def test_importing_the_package_costs_nothing():
    heavy = ("jax", "tensorflow", "torch", "matplotlib", "flax", "orbax", "tensorflow_datasets", "grain")
    code = f"import sys, t5x_lite; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_module_is_the_program():
    result = subprocess.run([sys.executable, "-m", "t5x_lite", "--version"], capture_output=True, text=True, check=True)
    import t5x_lite

    assert result.stdout.strip() == f"t5x_lite {t5x_lite.__version__}"


def test_output_that_is_not_utf8_is_escaped():
    code = "import sys, t5x_lite.cli; cli = sys.modules['t5x_lite.cli.main']; cli.main = lambda: print('\\udcff.png')"
    code += "; cli.run_and_exit()"
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert result.stdout == b"\\udcff.png\n"


def test_outputs_may_be_closed():
    for arguments, status in (("--version", 0), ("train nothing.py", 2)):
        command = f"{shlex.quote(sys.executable)} -m t5x_lite {arguments} >&-"
        result = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
        assert (result.returncode, result.stderr.count("\n")) == (status, status // 2)


def test_classes_of_ones_own_are_imported_before_a_command(run, tmp_path):
    file = tmp_path / "own_classes.py"
    file.write_text("VALUE = 3\n")
    try:
        assert import_modules(["runs/a", "--import", str(file), "--json"]) == ["runs/a", "--json"]
        assert sys.modules["own_classes"].VALUE == 3
    finally:
        sys.modules.pop("own_classes", None)
    same_name = tmp_path / "json.py"
    same_name.write_text("VALUE = 4\n")
    assert import_modules(["--import", str(same_name)]) == []
    assert sys.modules.pop("loaded_json").VALUE == 4
    not_yet_imported = tmp_path / "this.py"
    not_yet_imported.write_text("VALUE = 5\n")
    assert import_modules(["--import", str(not_yet_imported)]) == []
    assert sys.modules.pop("loaded_this").VALUE == 5 and "this" not in sys.modules
    file.write_text("1 / 0\n")
    status, _, error = run("evaluate", "runs/a", "--import", file)
    assert status == 2
    assert f"--import={file}" in error
    assert "ZeroDivisionError" in error
    status, _, error = run("evaluate", "runs/a", "--import")
    assert status == 2
    assert "--import names nothing" in error
