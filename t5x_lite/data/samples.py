"""Small files for examples."""

import importlib.resources
from pathlib import Path

from t5x_lite.errors import InputError


def sample_data(folder: str | Path = "sample_data") -> Path:
    """Writes the small files that the examples read into `folder`, made where it is missing, and returns it.

    | file | what |
    | --- | --- |
    | `novel.txt` | the first twelve chapters of *Pride and Prejudice*, a paragraph a line, 101 kB |
    | `authors_train.tsv`, `authors_test.tsv` | 600 and 150 sentences of Austen, Doyle and Melville: `text`, `author` |
    | `de_en.tsv` | the articles of the *Universal Declaration of Human Rights*: German, a tab, English; 50 pairs |
    | `german.txt` | eight short sentences |

    All are in the public domain. Files that are there already stay as they are.

    Raises `InputError` where `folder` is not a folder.
    """
    folder = Path(folder).expanduser()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder={folder} is not a folder; name another one")
    folder.mkdir(parents=True, exist_ok=True)
    for file in (importlib.resources.files("t5x_lite.data") / "sample_files").iterdir():
        if not (folder / file.name).exists():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder
