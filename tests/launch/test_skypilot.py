"""The managed job: its fields against SkyPilot's, and what the hosts of the slice run."""

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
TRAIN = ["configs/t5_base.py", "--workdir", "gs://bucket/a b", "--data.source.name", "it's $HOME `x`"]
# SkyPilot's fields of a task and of its resources that are used here, with their types (0.14).
TASK = {"name": str, "workdir": str, "resources": dict, "envs": dict, "setup": str, "run": str}
RESOURCES = {
    "infra": str,
    "accelerators": str,
    "accelerator_args": dict,
    "use_spot": bool,
    "job_recovery": dict,
}
RECOVERY = {"strategy": str, "max_restarts_on_errors": int, "recover_on_exit_codes": list}


@pytest.fixture
def task():
    return yaml.safe_load((CHECKOUT / "launch/skypilot.yaml").read_text())


@pytest.fixture
def home(tmp_path, monkeypatch, stand_ins):
    """A home with a uv and a Python that note how they are called."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    stand_ins.add("uv", "python", "curl")
    for program, place in (("uv", ".local/bin/uv"), ("python", "t5x_lite_venv/bin/python")):
        (home / place).parent.mkdir(parents=True)
        (stand_ins.folder / program).rename(home / place)
    return home


def launch(*arguments):
    return subprocess.run([CHECKOUT / "launch/skypilot.sh", *arguments], capture_output=True, text=True)


def test_every_field_is_one_that_skypilot_has(task):
    for mapping, fields in (
        (task, TASK),
        (task["resources"], RESOURCES),
        (task["resources"]["job_recovery"], RECOVERY),
    ):
        for name, value in mapping.items():
            assert type(value) is fields[name], name
    assert task["resources"]["job_recovery"]["strategy"] in ("FAILOVER", "EAGER_NEXT_REGION")
    assert task["envs"] == {"TRAIN": None}, "SkyPilot prompts for values that are missing"


def test_preemptions_do_not_count_other_failures_three_times(task):
    recovery = task["resources"]["job_recovery"]
    assert recovery["recover_on_exit_codes"] == [75]
    assert recovery["max_restarts_on_errors"] == 3


def commands_of(printed):
    """The commands that a dry run prints before what the hosts run."""
    return [shlex.split(line) for line in printed.stdout.partition("\n# on every host")[0].splitlines()]


def test_sky_is_called_after_the_check_as_the_dry_run_prints(home, stand_ins):
    stand_ins.add("sky", "python")
    printed = launch("--dry-run", "t5", "tpu-v5p-128", *TRAIN)
    assert printed.returncode == 0
    assert stand_ins.calls == [], "nothing was called"
    assert launch("t5", "tpu-v5p-128", *TRAIN).returncode == 0
    check, call = stand_ins.calls
    assert commands_of(printed) == [check, call]
    assert check == ["python", "-m", "t5x_lite", "check", TRAIN[0], "--topology", "tpu-v5p-128", *TRAIN[1:]]
    assert call[:3] == ["sky", "jobs", "launch"]
    options = dict(zip(call[3:-1:2], call[4:-1:2], strict=True))
    assert options["--name"] == "t5"
    assert options["--gpus"] == "tpu-v5p-128"
    assert call[-1] == "launch/skypilot.yaml"
    assert (CHECKOUT / call[-1]).is_file(), "relative to the checkout, where it is called"


def test_sky_shows_its_price_and_asks_unless_it_is_told_not_to(stand_ins):
    stand_ins.add("sky", "python")
    launch("t5", "tpu-v5p-8", *TRAIN)
    launch("--yes", "t5", "tpu-v5p-8", *TRAIN)
    asks, silent = [call for call in stand_ins.calls if call[0] == "sky"]
    assert not {"--yes", "-y"} & set(asks), "without it SkyPilot prints its table of prices and waits for an answer"
    assert "--yes" in silent


def test_options_before_the_name_are_skypilots(stand_ins):
    stand_ins.add("sky", "python")
    options = ["--infra=gcp/us-east5", "--no-use-spot", "--config=gcp.labels.run=a b"]
    assert launch(options[0], "--no-check", *options[1:], "t5", "tpu-v5p-8", *TRAIN).returncode == 0
    [call] = stand_ins.calls
    assert call[:6] == ["sky", "jobs", "launch", *options]
    assert call[6:10] == ["--name", "t5", "--gpus", "tpu-v5p-8"]


def test_a_run_that_could_not_begin_gets_no_machines(stand_ins):
    stand_ins.add("sky")
    stand_ins.add("python", does="sys.exit(2)")
    result = launch("t5", "tpu-v5p-8", *TRAIN)
    assert result.returncode == 2
    assert result.stderr == (
        "skypilot: the run could not begin, see above, and no machines were asked for; --no-check does so\n"
    )
    assert [call[0] for call in stand_ins.calls] == ["python"]


def test_the_status_is_skypilots(stand_ins):
    stand_ins.add("sky", does="sys.exit(3)")
    assert launch("--no-check", "t5", "tpu-v5p-8", *TRAIN).returncode == 3


def test_the_dry_run_prints_what_the_hosts_run(task, home, stand_ins):
    printed = launch("--dry-run", "t5", "tpu-v5p-128", *TRAIN).stdout
    for line in (task["setup"] + task["run"]).splitlines():
        assert line in printed.splitlines()


def test_the_hosts_run_train_with_these_very_arguments(task, home, stand_ins, monkeypatch):
    stand_ins.add("sky")
    launch("--no-check", "t5", "tpu-v5p-128", *TRAIN)
    [call] = stand_ins.calls
    name, _, value = call[call.index("--env") + 1].partition("=")
    monkeypatch.setenv(name, value)
    stand_ins.log.unlink()
    for part in ("setup", "run"):
        subprocess.run(["bash", "-c", task[part]], check=True)
    *_, pip, python = stand_ins.calls
    assert pip[:3] == ["uv", "pip", "install"]
    assert pip[-2:] == ["-e", ".[tpu]"]
    assert python == ["python", "-u", "-m", "t5x_lite", "train", *TRAIN]


def test_the_status_of_the_run_is_the_status_of_the_job(task, home, stand_ins, monkeypatch):
    stand_ins.add("python", does="sys.exit(75 if os.environ.get('T5X_LITE_SUPERVISED') else 3)")
    (stand_ins.folder / "python").rename(home / "t5x_lite_venv/bin/python")
    monkeypatch.setenv("TRAIN", "configs/t5_base.py")
    assert subprocess.run(["bash", "-c", task["run"]]).returncode == 75


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "usage: launch/skypilot.sh"),
        (["t5", "tpu-v5p-8"], "usage: launch/skypilot.sh"),
        (["t5", "tpu-v5p-8", "configs/t5_base.py"], "the workdir is lost with the machines"),
        (["t5", "tpu-v5p-8", "configs/t5_base.py", "--workdir", "runs/a"], "choose a bucket"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(stand_ins, arguments, expected):
    stand_ins.add("sky")
    result = launch(*arguments)
    assert result.returncode == 2
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1
    assert stand_ins.calls == []
