"""Documents from plain text and JSON lines on disk, compressed or not."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from t5x_lite.data import input_files
from t5x_lite.data.sources import Source
from t5x_lite.errors import InputError

DocumentUnit = Literal["paragraph", "line", "file"]

_ENDINGS = (".txt", ".txt.gz", *input_files.JSON_ENDINGS)


@dataclass(frozen=True)
class TextFiles(Source):
    """Files, globs and folders of `.txt`, `.jsonl`, `.json` (one object a line) and their `.gz`, in UTF-8.

    Folders are searched recursively for those endings, hidden names left out; a file that is named itself may have any
    ending and is plain text then. Files are read in sorted order, each once.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'books/**/*.txt', or folders."""
    document: DocumentUnit = "paragraph"
    """What one document of a plain text file is. 'paragraph': a block between blank lines, or each line of a file that
    has no blank line between its lines. A line of JSON is always one document."""
    field: str = "text"
    """Key of the text in a line of JSON; 'a/b' is b in the object a."""

    def __post_init__(self) -> None:
        input_files.check_paths(self.paths)
        if self.document not in get_args(DocumentUnit):
            raise InputError(
                f"document={self.document!r} is unknown; choose one of {', '.join(get_args(DocumentUnit))}"
            )

    def files(self) -> list[Path]:
        """The files that are read, in order; `InputError` for a path that gives none."""
        return input_files.files_of(self.paths, _ENDINGS)

    def documents(self) -> Iterator[str]:
        empty = True
        for path in self.files():
            for text in filter(None, map(str.strip, self._documents_of(path))):
                empty = False
                yield text
        if empty:
            raise InputError(f"paths={self.paths} hold no text but blanks; give files with text")

    def fingerprint(self) -> str:
        return input_files.hash_files(f"TextFiles {self.document} {self.field}", self.files())

    def _documents_of(self, path: Path) -> Iterator[str]:
        if path.name.lower().endswith(input_files.JSON_ENDINGS):
            return (
                input_files.text_of(record, self.field, f"{path}:{number}")
                for number, record in input_files.json_records(path)
            )
        if self.document == "file":
            return iter([input_files.whole_text(path)])
        if self.document == "line" or not _has_paragraphs(path):
            return (line for _, line in input_files.lines(path))
        return _paragraphs(path)


def _has_paragraphs(path: Path) -> bool:
    """Whether a blank line stands between two lines with text; reads no further than that."""
    seen_text = seen_blank = False
    with input_files.readable(path), input_files.open_bytes(path) as file:
        for line in file:
            if line.removeprefix(codecs.BOM_UTF8).strip():
                if seen_blank:
                    return True
                seen_text = True
            else:
                seen_blank = seen_text
    return False


def _paragraphs(path: Path) -> Iterator[str]:
    block: list[str] = []
    for _, line in input_files.lines(path):
        if line := line.strip():
            block.append(line)
        elif block:
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)
