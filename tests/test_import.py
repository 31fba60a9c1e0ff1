"""Importing the package from where people stand, and what its parts import from each other."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import t5x_lite

PACKAGE = Path(t5x_lite.__file__).parent


@pytest.mark.parametrize(
    "command", [["-c", "import t5x_lite; print(t5x_lite.__version__)"], ["-m", "t5x_lite", "--help"]]
)
def test_in_the_folder_that_holds_the_clone(tmp_path, command):
    """A folder with the package's name, such as a clone, is not taken for it."""
    (tmp_path / "t5x_lite").symlink_to(Path(t5x_lite.__file__).parent.parent, target_is_directory=True)
    process = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert t5x_lite.__version__ in process.stdout


def imported_rooms(file: Path) -> set[str]:
    """The folders of the package that a file imports from, those for annotations alone left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    imports = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    parts = [name.split(".") for name in imports]
    return {each[1] for each in parts if each[0] == "t5x_lite" and len(each) > 1 and (PACKAGE / each[1]).is_dir()}


def test_imports_run_one_way():
    rooms = {folder.name: folder for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    graph = {
        name: {room for file in folder.rglob("*.py") for room in imported_rooms(file)} - {name}
        for name, folder in rooms.items()
    }
    assert graph["runs"] >= {"training", "parallel"} and len(graph) > 15
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError with the rooms of a cycle
    assert order.index("layers") < order.index("models") < order.index("objectives") < order.index("training")
    assert order[-1] == "cli"
