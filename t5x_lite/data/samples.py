"""Small files for examples."""

import importlib.resources
from pathlib import Path

from t5x_lite.errors import InputError
from t5x_lite.files import write_atomically

FILES = ("authors_test.tsv", "authors_train.tsv", "de_en.tsv", "german.txt", "novel.txt")
"""What `sample_data` writes."""


def sample_data(folder: str | Path = "sample_data") -> Path:
    """Writes the small files that the examples read into `folder`, made where it is missing, and returns it.

    | file | what |
    | --- | --- |
    | `novel.txt` | the first twelve chapters of *Pride and Prejudice*, a paragraph a line, 101 kB |
    | `authors_train.tsv`, `authors_test.tsv` | 600 and 150 sentences of Austen, Doyle and Melville: `text`, `author` |
    | `de_en.tsv` | the articles of the *Universal Declaration of Human Rights*: German, a tab, English; 50 pairs |
    | `german.txt` | eight short sentences |

    All are in the public domain. Files that are there already stay as they are.

    Raises `InputError` where `folder` is not a folder, or nothing can be written there.
    """
    folder = Path(folder).expanduser()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder={folder} is not a folder; name another one")
    sources = importlib.resources.files("t5x_lite.data") / "sample_files"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            if not (folder / name).exists():
                write_atomically(folder / name, (sources / name).read_bytes())
    except OSError as error:
        raise InputError(f"folder={folder} cannot be written ({error.strerror}); name another one") from None
    return folder
