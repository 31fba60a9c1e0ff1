"""The promises of launch/README.md: its dry runs print what it shows, and every command in it can be called."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "launch/README.md").read_text()


def dry_runs():
    """Pairs of a command after `$` and the lines printed below it, `...` for what is left out."""
    blocks = re.findall(r"^    \$ (.+)\n((?:^    .*\n)+)", README, re.MULTILINE)
    return [(command, [line[4:] for line in printed.splitlines()]) for command, printed in blocks]


def calls():
    """Every other call of a launcher, in a block or between backticks."""
    written = re.findall(r"^    (launch/\S+ .+)$|`((?:sbatch[^`]* )?launch/[^`]+ [^`]+)`", README, re.MULTILINE)
    return [(block or inline).partition("#")[0].strip() for block, inline in written]


def run(*command):
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)


def test_every_way_has_a_dry_run():
    assert {command.split()[0] for command, _ in dry_runs()} == {
        "launch/tpu_vm.py",
        "launch/gke_jobset.py",
        "launch/skypilot.sh",
        "launch/slurm.sbatch",
        "launch/xpk.sh",
    }
    assert len(calls()) >= 5


@pytest.mark.parametrize("command", [command for command, _ in dry_runs()])
def test_dry_runs_print_what_the_readme_says(command):
    result = run("bash", "-c", command)
    assert (result.returncode, result.stderr) == (0, "")
    printed = [line.rstrip() for line in result.stdout.splitlines()]
    expected, at = dict(dry_runs())[command], 0
    for line, before in zip(expected, [None, *expected], strict=False):
        if line != "...":
            where = printed.index(line, at) if before == "..." else at
            assert printed[where] == line
            at = where + 1
    assert at == len(printed) or expected[-1] == "..."


@pytest.mark.parametrize("call", calls())
def test_other_calls_are_understood(call):
    words = shlex.split(call)
    if words[0] == "sbatch":
        words = words[next(n for n, word in enumerate(words) if word.startswith("launch/")) :]
    # Among the launcher's own options: what follows -- is train's.
    place = (words.index("--") if "--" in words else len(words)) if words[0].endswith(".py") else 1
    result = run(*words[:place], "--dry-run", *words[place:])
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout


def test_every_example_for_tpus_reads_prepared_data_and_is_checked():
    commands = [command for command, _ in dry_runs() if "slurm" not in command]
    commands += [call for call in calls() if " -- " in call or call.startswith("launch/skypilot.sh")]
    assert len(commands) >= 7
    for command in commands:
        assert "--data.prepared gs://my-bucket/data" in command
        assert "--no-check" not in command
    assert "t5x-lite prepare configs/t5_base.py --out gs://my-bucket/data" in README


def test_every_file_is_named():
    for path in (CHECKOUT / "launch").iterdir():
        if path.name not in ("README.md", "Dockerfile.dockerignore", "__pycache__"):
            assert f"`{path.name}`" in README, path.name
