"""Pictures as files, and where they may lie."""

import subprocess
import sys
from pathlib import Path

import pytest

from t5x_lite.errors import InputError
from t5x_lite.pictures import Picture
from t5x_lite.pictures.output_files import check_output_path

SIGNATURE = b"\x89PNG"


def test_a_picture_is_a_png_in_files_and_notebooks(tmp_path):
    picture = Picture(figsize=(1, 1))
    picture.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(SIGNATURE)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert picture._repr_png_().startswith(SIGNATURE)
    with pytest.raises(InputError, match="path=.*a.jpg is no name of a picture; choose one that ends in .png"):
        picture.save(tmp_path / "a.jpg")
    with pytest.raises(InputError, match="lies in no folder; make the folder first"):
        picture.save(tmp_path / "absent" / "a.png")


def test_either_of_two_kinds():
    with pytest.raises(InputError, match="out=a.gif is no name of a page or picture; .* ends in .html or .png"):
        check_output_path(Path("a.gif"), "out", (".html", ".png"))


def test_matplotlib_is_loaded_by_those_who_draw():
    code = (
        "import sys, t5x_lite.pictures, t5x_lite.pretrained; print('matplotlib' in sys.modules);"
        "t5x_lite.pictures.Picture; print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True", "False"]
