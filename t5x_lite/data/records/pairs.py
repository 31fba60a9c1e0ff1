"""Where pairs come from: a text and what is to be written for it, such as a sentence and its translation."""

import abc
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from t5x_lite.data.records import input_files
from t5x_lite.data.records.base import Record, Source, text_of
from t5x_lite.data.records.tfds import Tfds
from t5x_lite.errors import InputError

Empty = Literal["error", "skip"]

TSV_ENDINGS = (".tsv", ".tsv.gz")


class PairRecord(NamedTuple):
    """A pair as it was read, and where."""

    files: tuple[Path, ...]
    number: int
    """Of the line in each file, or of the example; from 1."""
    source: str
    target: str


class EvalExample(NamedTuple):
    """An input to answer, and what is right to answer."""

    text: str
    right: tuple[str, ...]
    """Every text that is right; the first is the one to learn where there is one to learn. None where nobody knows."""
    group: str = ""
    """The same for inputs that are scored together, such as the answers to one question."""


@dataclass(frozen=True)
class PairSource(Source):
    """A corpus of pairs in a fixed order. Where plain documents are asked for (to train a tokenizer, or by an objective
    on text), each side is one."""

    prefix: str = field(default="", kw_only=True)
    """Written before each source, as T5 names its tasks: 'translate German to English: ', blank included."""
    empty: Empty = field(default="error", kw_only=True)
    """What becomes of a pair with an empty side: 'error' refuses the corpus, 'skip' leaves the pair out."""

    def __post_init__(self) -> None:
        if self.empty not in get_args(Empty):
            raise InputError(f"empty={self.empty!r} is unknown; choose one of {', '.join(get_args(Empty))}")

    @abc.abstractmethod
    def records(self) -> Iterator[PairRecord]:
        """Every pair as it stands there, an empty side too; `InputError` when it cannot be read."""

    def pairs(self) -> Iterator[tuple[str, str]]:
        """(source, target) of every pair, both stripped; `InputError` for an empty side, or when there is no pair."""
        return ((source, target) for _, _, source, target in self._filled())

    def asked(self) -> Iterator[EvalExample]:
        """What a model is asked to be scored: unless a source knows better, its pairs."""
        return (EvalExample(source, (target,)) for source, target in self.pairs())

    def documents(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.pairs())

    def location(self, number: int) -> str:
        """Where the pair with this number, from 1, stands, to be read in a message; found by reading up to it."""
        return self._format_location(next(itertools.islice(self._filled(), number - 1, None)))

    def _format_location(self, record: PairRecord) -> str:
        return " with ".join(f"{file}:{record.number}" for file in record.files)

    def _filled(self) -> Iterator[PairRecord]:
        found = False
        for record in self.records():
            source, target = record.source.strip(), record.target.strip()
            if source and target:
                found = True
                yield record._replace(source=self.prefix + source, target=target)
            elif self.empty == "error":
                side = "target" if source else "source"
                raise InputError(
                    f"{self._format_location(record)} has an empty {side}; fill it, remove the pair, or set "
                    "empty='skip' to leave such pairs out"
                )
        if not found:
            raise InputError(f"{self} holds no pairs; give some")


@dataclass(frozen=True)
class TsvPairs(PairSource):
    """Files, globs and folders of `.tsv` and `.tsv.gz` in UTF-8: a pair a line, columns between tabs, nothing quoted.

    Files are read in sorted order, each once; one that is named itself may have any ending. Blank lines are no pairs.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'corpus/**/*.tsv', or folders."""
    source_column: int = 0
    """Counted from 0."""
    target_column: int = 1
    """Counted from 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        input_files.check_paths(self.paths)
        for name in ("source_column", "target_column"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}={getattr(self, name)} is negative; columns count from 0")
        if self.source_column == self.target_column:
            raise InputError(f"source_column={self.source_column} is target_column too; choose another one")

    def files(self) -> list[Path]:
        """The files that are read, in order; `InputError` for a path that gives none."""
        return input_files.files_of(self.paths, TSV_ENDINGS)

    def records(self) -> Iterator[PairRecord]:
        for path in self.files():
            for number, line in input_files.lines(path):
                if line.strip():
                    columns = line.split("\t")
                    self._check(columns, path, number)
                    yield PairRecord((path,), number, columns[self.source_column], columns[self.target_column])

    def _check(self, columns: list[str], path: Path, number: int) -> None:
        for name in ("source_column", "target_column"):
            if getattr(self, name) >= len(columns):
                has = "column 0 alone" if len(columns) == 1 else f"columns 0 to {len(columns) - 1} alone"
                raise InputError(
                    f"{name}={getattr(self, name)} is missing in {path}:{number}, which has {has}; set {name}, or "
                    "write a tab between the two sides"
                )

    def fingerprint(self) -> str:
        options = (self.source_column, self.target_column, self.prefix, self.empty)
        return input_files.hash_files(f"TsvPairs {options}", self.files())


@dataclass(frozen=True)
class JsonlPairs(PairSource):
    """Files, globs and folders of `.jsonl`, `.json` (one object a line) and their `.gz`, in UTF-8: a pair an object.

    Files are read in sorted order, each once; one that is named itself may have any ending.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'corpus/**/*.jsonl', or folders."""
    source: str = "source"
    """Key of the source; 'a/b' is b in the object a, as in {"translation": {"de": ..., "en": ...}}."""
    target: str = "target"
    """Key of the target."""

    def __post_init__(self) -> None:
        super().__post_init__()
        input_files.check_paths(self.paths)

    def files(self) -> list[Path]:
        """The files that are read, in order; `InputError` for a path that gives none."""
        return input_files.files_of(self.paths, input_files.JSON_ENDINGS)

    def records(self) -> Iterator[PairRecord]:
        for path in self.files():
            for number, record in input_files.json_records(path):
                found = Record(f"{path}:{number}", record)
                source, target = text_of(found, self.source, "source"), text_of(found, self.target, "target")
                yield PairRecord((path,), number, source, target)

    def fingerprint(self) -> str:
        options = (self.source, self.target, self.prefix, self.empty)
        return input_files.hash_files(f"JsonlPairs {options}", self.files())


@dataclass(frozen=True)
class ParallelPairs(PairSource):
    """Two files, or lists of them, in UTF-8, `.gz` too: line n of the one goes with line n of the other.

    The first file of `source` goes with the first of `target`, and so on; what a glob matches or a folder holds is
    sorted by name. Lines that are blank in both are no pairs.
    """

    source: tuple[str, ...]
    """Files such as 'train.de', globs or folders, in their order."""
    target: tuple[str, ...]
    """As many files, such as 'train.en'."""

    def __post_init__(self) -> None:
        super().__post_init__()
        input_files.check_paths(self.source, "source")
        input_files.check_paths(self.target, "target")

    def files(self) -> list[tuple[Path, Path]]:
        """(file of sources, file of targets) in order; `InputError` for a path that gives none, or unequal numbers."""
        sources, targets = (
            [file.resolve() for path in paths for file in input_files.expand(path, (), name)]
            for name, paths in (("source", self.source), ("target", self.target))
        )
        if len(sources) != len(targets):
            raise InputError(
                f"source has {len(sources)} files and target {len(targets)}, so that they cannot be parallel; give as "
                "many of the one as of the other"
            )
        return list(zip(sources, targets, strict=True))

    def records(self) -> Iterator[PairRecord]:
        for source_file, target_file in self.files():
            sources, targets = input_files.lines(source_file), input_files.lines(target_file)
            for number, (source, target) in enumerate(itertools.zip_longest(sources, targets), start=1):
                if source is None or target is None:
                    rest = number + sum(1 for _ in (sources if target is None else targets))
                    raise _unequal(source_file, target_file, number - 1, rest, more_targets=source is None)
                if source[1].strip() or target[1].strip():
                    yield PairRecord((source_file, target_file), number, source[1], target[1])

    def fingerprint(self) -> str:
        files = self.files()
        options = (self.prefix, self.empty, len(files))
        return input_files.hash_files(f"ParallelPairs {options}", itertools.chain(*zip(*files, strict=True)))


def _unequal(source: Path, target: Path, fewer: int, more: int, *, more_targets: bool) -> InputError:
    short, long = (source, target) if more_targets else (target, source)
    return InputError(
        f"{long} has {more} lines and {short} has {fewer}, so that line {fewer + 1} of {long.name} has no partner; "
        "give files that are parallel line by line"
    )


@dataclass(frozen=True)
class TfdsPairs(PairSource):
    """Two text features of a split of a dataset of TensorFlow Datasets (see `Tfds`), such as the two languages of
    'wmt14_translate/de-en': `TfdsPairs("wmt14_translate/de-en", source="en", target="de")`."""

    name: str
    """As in tfds.builder, e.g. 'wmt14_translate/de-en' or 'cnn_dailymail'."""
    split: str = "train"
    """A split or a part of one, e.g. 'validation' or 'train[:10%]'."""
    source: str = "source"
    """The feature that is read, such as 'de' or 'article'; 'a/b' is b of the feature a."""
    target: str = "target"
    """The feature that is to be written, such as 'en' or 'highlights'."""
    data_dir: str = ""
    """Folder of the datasets; empty means TFDS's own, ~/tensorflow_datasets."""

    def records(self) -> Iterator[PairRecord]:
        for number, found in enumerate(self._dataset(), start=1):
            source, target = text_of(found, self.source, "source"), text_of(found, self.target, "target")
            yield PairRecord((), number, source, target)

    def _format_location(self, record: PairRecord) -> str:
        return f"example {record.number - 1} of split={self.split!r} of name={self.name!r}"

    def fingerprint(self) -> str:
        parts = (self._dataset().fingerprint(), self.source, self.target, self.prefix, self.empty)
        return hashlib.blake2b(f"TfdsPairs {parts}".encode(), digest_size=16).hexdigest()

    def _dataset(self) -> Tfds:
        return Tfds(self.name, self.split, self.data_dir)
