"""Where examples of tasks come from: records with named fields, such as a sentence and its label."""

import csv
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from t5x_lite.data.records import input_files
from t5x_lite.data.records.base import Record, Records
from t5x_lite.errors import InputError

TABLE_ENDINGS = (".tsv", ".tsv.gz", ".csv", ".csv.gz")

Separator = Literal["tab", "comma"]


@dataclass(frozen=True)
class TableFiles(Records):
    """Files, globs and folders of `.tsv` and `.csv` and their `.gz`, in UTF-8. A first line names the columns.

    Between tabs nothing is quoted. Between commas a field may stand in double quotes, over several lines too.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'reviews/*.tsv', or folders."""
    columns: tuple[str, ...] = ()
    """Names of the columns, for files whose first line is an example already."""
    separator: Separator | None = None
    """What stands between columns: tab or comma; None goes by the file's ending, comma for .csv."""

    def __post_init__(self) -> None:
        input_files.check_paths(self.paths)
        if self.separator is not None and self.separator not in get_args(Separator):
            raise InputError(f"separator={self.separator!r} is unknown; choose one of {', '.join(get_args(Separator))}")
        if len(set(self.columns)) < len(self.columns):
            raise InputError(f"columns={self.columns} names one of them twice; name each once")

    def files(self) -> list[Path]:
        """The files that are read, in order; `InputError` for a path that gives none."""
        return input_files.files_of(self.paths, TABLE_ENDINGS)

    def __iter__(self) -> Iterator[Record]:
        for path in self.files():
            rows = self._rows(path)
            names = list(self.columns) or self._header(path, next(rows, None))
            for number, row in rows:
                if len(row) != len(names):
                    raise InputError(
                        f"{path}:{number} has {len(row)} columns and not the {len(names)} of "
                        f"{', '.join(map(repr, names))}; correct the line, or set columns or separator"
                    )
                yield Record(f"{path}:{number}", dict(zip(names, row, strict=True)))

    def _rows(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """(number of its last line, columns) of every row that is not blank."""
        by_name = "comma" if path.name.lower().endswith((".csv", ".csv.gz")) else "tab"
        if (self.separator or by_name) == "tab":
            yield from ((number, line.split("\t")) for number, line in input_files.lines(path) if line.strip())
            return
        reader = csv.reader((f"{line}\n" for _, line in input_files.lines(path)), strict=True)
        try:
            yield from ((reader.line_num, row) for row in reader if row)
        except csv.Error as error:
            raise InputError(
                f"{path}:{reader.line_num} is no CSV ({error}); correct it, or set separator='tab'"
            ) from None

    def _header(self, path: Path, first: tuple[int, list[str]] | None) -> list[str]:
        names = [name.strip() for name in first[1]] if first else []
        # One column without a name is the index that pandas writes in front.
        if len(set(names)) < len(names) or not any(names):
            raise InputError(
                f"the first line of {path} names no columns: {', '.join(map(repr, names))}; write one name for each, "
                "or set columns"
            )
        return names

    def fingerprint(self) -> str:
        return input_files.hash_files(f"TableFiles {(self.columns, self.separator)}", self.files())


@dataclass(frozen=True)
class JsonlFiles(Records):
    """Files, globs and folders of `.jsonl`, `.json` (one object a line) and their `.gz`, in UTF-8."""

    paths: tuple[str, ...]
    """Files, globs such as 'reviews/*.jsonl', or folders."""

    def __post_init__(self) -> None:
        input_files.check_paths(self.paths)

    def files(self) -> list[Path]:
        """The files that are read, in order; `InputError` for a path that gives none."""
        return input_files.files_of(self.paths, input_files.JSON_ENDINGS)

    def __iter__(self) -> Iterator[Record]:
        for path in self.files():
            for number, record in input_files.json_records(path):
                yield Record(f"{path}:{number}", record)

    def fingerprint(self) -> str:
        return input_files.hash_files("JsonlFiles", self.files())


@dataclass(frozen=True)
class ParallelFiles(Records):
    """Files in UTF-8, `.gz` too, one for each field: line n of every one is example n. Lines blank in all are none."""

    fields: tuple[str, ...]
    """Names such as ('premise', 'hypothesis', 'label')."""
    paths: tuple[str, ...]
    """The file of each."""

    def __post_init__(self) -> None:
        input_files.check_paths(self.paths)
        if len(set(self.fields)) != len(self.paths):
            raise InputError(
                f"fields={self.fields} do not go with paths={self.paths}; give one file for each, and each name once"
            )

    def __iter__(self) -> Iterator[Record]:
        files = self.files()
        for number, lines in enumerate(itertools.zip_longest(*map(input_files.lines, files)), start=1):
            if None in lines:
                short, long = files[lines.index(None)], next(f for f, line in zip(files, lines, strict=True) if line)
                raise InputError(
                    f"{short} ends before line {number}, which {long} has; give files that are parallel line by line"
                )
            texts = [text for _, text in lines]
            if any(text.strip() for text in texts):
                yield Record(f"{files[0]}:{number}", dict(zip(self.fields, texts, strict=True)))

    def files(self) -> list[Path]:
        """The file of each field; `InputError` for one that is not there."""
        return _one_each(self.paths, "field")

    def fingerprint(self) -> str:
        return input_files.hash_files(f"ParallelFiles {self.fields}", self.files())


@dataclass(frozen=True)
class ClassFiles(Records):
    """Files in UTF-8, `.gz` too, one for each class: a text a line. Fields are `text` and `label`.

    Blank lines are none.
    """

    labels: tuple[str, ...]
    """Names of the classes, such as ('negative', 'positive')."""
    paths: tuple[str, ...]
    """The file of each."""

    def __post_init__(self) -> None:
        input_files.check_paths(self.paths)
        if len(set(self.labels)) != len(self.paths):
            raise InputError(
                f"labels={self.labels} do not go with paths={self.paths}; give one file for each, and each name once"
            )

    def __iter__(self) -> Iterator[Record]:
        for label, path in zip(self.labels, self.files(), strict=True):
            for number, line in input_files.lines(path):
                if line.strip():
                    yield Record(f"{path}:{number}", {"text": line.strip(), "label": label})

    def files(self) -> list[Path]:
        """The file of each class; `InputError` for one that is not there."""
        return _one_each(self.paths, "class")

    def fingerprint(self) -> str:
        return input_files.hash_files(f"ClassFiles {self.labels}", self.files())


def _one_each(paths: tuple[str, ...], what: str) -> list[Path]:
    found = [input_files.expand(path, ()) for path in paths]
    if several := [path for path, files in zip(paths, found, strict=True) if len(files) > 1]:
        raise InputError(f"paths={several[0]!r} names several files; name one for each {what}")
    return [file.resolve() for (file,) in found]
