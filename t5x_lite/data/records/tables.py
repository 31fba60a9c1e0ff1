"""Records in files of one's own: tables, JSON lines, and files that go together line by line."""

import csv
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from t5x_lite.data.records import input_files
from t5x_lite.data.records.base import Record
from t5x_lite.data.records.input_files import FileRecords
from t5x_lite.errors import InputError

TABLE_ENDINGS = (".tsv", ".tsv.gz", ".csv", ".csv.gz")


@dataclass(frozen=True)
class TableFiles(FileRecords):
    """Files, globs and folders of `.tsv` and `.csv` and their `.gz`, in UTF-8. A first line names the columns.

    Between tabs nothing is quoted. Between commas a field may stand in double quotes, over several lines too.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'reviews/*.tsv', or folders."""
    columns: tuple[str, ...] | None = None
    """Names of the columns, for files without a line of names; with () they are called '0', '1', '2' ..."""
    separator: Literal["tab", "comma"] | None = None
    """Between columns; None goes by the file's ending, comma for .csv."""

    endings: ClassVar[tuple[str, ...]] = TABLE_ENDINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns and len(set(self.columns)) < len(self.columns):
            raise InputError(f"columns={self.columns} names one of them twice; name each once")

    def records_in(self, path: Path) -> Iterator[tuple[int, dict[str, str]]]:
        rows, names = self._rows(path), self.columns
        if names is None:
            _, first = next(rows, (0, []))
            names = [name.strip() for name in first]
            # One column without a name is the index that pandas writes in front.
            if len(set(names)) < len(names) or not any(names):
                raise InputError(
                    f"the first line of {path} names no columns: {', '.join(map(repr, names))}; write one name for "
                    "each, or set columns"
                )
        for number, row in rows:
            of_row = names or list(map(str, range(len(row))))
            if len(row) != len(of_row):
                raise InputError(
                    f"{path}:{number} has {len(row)} columns and not the {len(names)} of "
                    f"{', '.join(map(repr, names))}; correct the line, or set columns or separator"
                )
            yield number, dict(zip(of_row, row, strict=True))

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
            problem = f"is not CSV ({error})"
            raise InputError(f"{path}:{reader.line_num} {problem}; correct it, or set separator='tab'") from None


@dataclass(frozen=True)
class JsonlFiles(FileRecords):
    """Files, globs and folders of `.jsonl`, `.json` (one object a line) and their `.gz`, in UTF-8."""

    paths: tuple[str, ...]
    """Files, globs such as 'reviews/*.jsonl', or folders."""

    endings: ClassVar[tuple[str, ...]] = input_files.JSON_ENDINGS


@dataclass(frozen=True)
class ParallelFiles(FileRecords):
    """Files in UTF-8, `.gz` too, for each field: line n of parallel files is an example, unless it is blank in all."""

    fields: tuple[str, ...]
    """Names such as ('premise', 'hypothesis', 'label')."""
    paths: tuple[str, ...]
    """The file of each; or a glob or folder of each with as many files, parallel in the order of their names."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_one_each("fields", self.fields, self.paths)

    def __iter__(self) -> Iterator[Record]:
        for files in self._groups():
            for number, lines in enumerate(itertools.zip_longest(*map(input_files.lines, files)), start=1):
                if None in lines:
                    short = files[lines.index(None)]
                    long = next(file for file, line in zip(files, lines, strict=True) if line)
                    raise InputError(
                        f"{short} ends before line {number}, which {long} has; give files that are parallel line by "
                        "line"
                    )
                texts = [text for _, text in lines]
                if any(text.strip() for text in texts):
                    location = " with ".join(f"{file}:{number}" for file in files)
                    yield Record(location, dict(zip(self.fields, texts, strict=True)))

    def files(self) -> list[Path]:
        return list(itertools.chain.from_iterable(self._groups()))

    def _groups(self) -> list[tuple[Path, ...]]:
        """Parallel files, one for each field."""
        groups = [[file.resolve() for file in input_files.expand(path, ())] for path in self.paths]
        if len(set(map(len, groups))) > 1:
            counts = " and ".join(f"{path!r} {len(files)}" for path, files in zip(self.paths, groups, strict=True))
            raise InputError(
                f"paths={self.paths} name unequal numbers of files ({counts}), so that they cannot be parallel; give "
                "as many for each field"
            )
        return list(zip(*groups, strict=True))


@dataclass(frozen=True)
class ClassFiles(FileRecords):
    """Files in UTF-8, `.gz` too, one for each class: a text a line, blank ones aside. Fields are `text` and `label`."""

    labels: tuple[str, ...]
    """Names of the classes, such as ('negative', 'positive')."""
    paths: tuple[str, ...]
    """The file of each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_one_each("labels", self.labels, self.paths)

    def __iter__(self) -> Iterator[Record]:
        for label, path in zip(self.labels, self.files(), strict=True):
            for number, line in input_files.lines(path):
                if line.strip():
                    yield Record(f"{path}:{number}", {"text": line.strip(), "label": label})

    def files(self) -> list[Path]:
        files = []
        for path in self.paths:
            file, *others = input_files.expand(path, ())
            if others:
                raise InputError(f"paths={path!r} names several files; name one for each class")
            files.append(file.resolve())
        return files


def _check_one_each(option: str, names: tuple[str, ...], paths: tuple[str, ...]) -> None:
    """Raises `InputError` unless there is a path for each name, and no name twice."""
    if len(set(names)) != len(paths):
        raise InputError(f"{option}={names} do not go with paths={paths}; give one file for each, and each name once")
