"""The check that the launchers of TPUs make before they ask for machines: `python -m t5x_lite check`."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


class Refusal(Exception):
    """Bad input, in one sentence: exit status 2."""


def check_command(topology: str, slices: int, train: Sequence[str]) -> list[str]:
    """What checks config, mesh, workdir and data, with the rights of whoever launches."""
    across = ["--slices", str(slices)] if slices > 1 else []
    return ["-m", "t5x_lite", "check", train[0], "--topology", topology, *across, *train[1:]]


def check_run(command: Sequence[str]) -> None:
    """Raises `Refusal` for a run that could not begin, after the sentences that say why."""
    if importlib.util.find_spec("jax") is None:
        raise Refusal(
            f"{sys.executable} has no t5x_lite to check the run with; install it (pip install -e .) or give --no-check"
        )
    if subprocess.run([sys.executable, *command], cwd=CHECKOUT).returncode:
        raise Refusal("the run could not begin, see above, and no machines were asked for; --no-check does so")
