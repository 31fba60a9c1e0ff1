"""Importing the package from where people stand."""

import subprocess
import sys
from pathlib import Path

import pytest

import t5x_lite


@pytest.mark.parametrize(
    "command", [["-c", "import t5x_lite; print(t5x_lite.__version__)"], ["-m", "t5x_lite", "--help"]]
)
def test_in_the_folder_that_holds_the_clone(tmp_path, command):
    """A folder with the package's name, such as a clone, is not taken for it."""
    (tmp_path / "t5x_lite").symlink_to(Path(t5x_lite.__file__).parent.parent, target_is_directory=True)
    process = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert t5x_lite.__version__ in process.stdout
