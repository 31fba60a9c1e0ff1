"""Where a picture or a page may be written, and writing it there."""

import os
from pathlib import Path

from t5x_lite.errors import InputError

_KINDS = {".png": "picture", ".html": "page"}


def check_output_path(path: Path, option: str, suffixes: tuple[str, ...] = (".png",)) -> None:
    """Raises `InputError` for a name that ends otherwise than its kind does, or that lies in no folder."""
    if path.suffix not in suffixes:
        kinds = " or ".join(_KINDS[suffix] for suffix in suffixes)
        raise InputError(f"{option}={path} is no name of a {kinds}; choose one that ends in {' or '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option}={path} lies in no folder; make the folder first, or choose another place")


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that is either the old one or the new one."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
