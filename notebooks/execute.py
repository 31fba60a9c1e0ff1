"""Runs notebooks from the first cell to the last and keeps what their cells show.

    python notebooks/execute.py            # all of them; or name some: notebooks/1_pretrain_t5.ipynb

Needs the extra [test]; for notebook 5 [tpu], for notebook 6 [oracle]. What is kept is small: pictures have 64 colours,
warnings are left out.
"""

import base64
import io
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parent


def with_fewer_colours(png: str) -> str:
    """A picture in base64, with 64 colours."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    smaller = io.BytesIO()
    picture.save(smaller, "PNG", optimize=True)
    return base64.b64encode(smaller.getvalue()).decode()


def execute(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=900, record_timing=False, coalesce_streams=True, resources=resources).execute()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if png := output.get("data", {}).get("image/png"):
                output["data"]["image/png"] = with_fewer_colours(png)
    notebook.metadata["language_info"] = {"name": "python"}  # without the version that ran it
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in [Path(name).resolve() for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        print(path.name, flush=True)
        execute(path)
