"""Programs that replace gcloud, kubectl and the like: they log their calls, and run the code of a test."""

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

STAND_IN = """#!{python} -IS
import json, os, sys
name = os.path.basename(sys.argv[0])
stdin = "" if name not in {reading} else sys.stdin.read()
with open({log!r}, "a") as log:
    log.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
    if stdin:
        log.write(json.dumps([name + " <", stdin]) + "\\n")
{does}
"""


class StandIns:
    """Programs in a folder that comes first on PATH, and the log of their calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder, self.log = folder, folder / "calls.jsonl"
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def add(self, *names: str, does: str = "", reads: bool = False) -> None:
        """Makes programs that log their arguments (and standard input) and then run `does`, in Python."""
        for name in names:
            text = STAND_IN.format(
                python=sys.executable, log=str(self.log), does=does, reading={name} if reads else "()"
            )
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        """How they were called, in order: name and arguments."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def stand_ins(tmp_path, monkeypatch) -> StandIns:
    folder = tmp_path / "bin"
    folder.mkdir()
    return StandIns(folder, monkeypatch)


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """`script("tpu_vm")` is launch/tpu_vm.py as a module; launch/ is not a package."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"launch_{name}", CHECKOUT / "launch" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        sys.path.insert(0, str(CHECKOUT / "launch"))  # as for a script, which finds the files beside it
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.pop(0)
        return module

    return load
