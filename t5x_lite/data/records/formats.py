"""Records in files: tables, JSON lines, parallel files, files of classes, tagged words (CoNLL), questions (SQuAD)."""

import csv
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from t5x_lite.data.records import input_files
from t5x_lite.data.records.base import Record, Source
from t5x_lite.data.records.input_files import FileRecords, InputFile
from t5x_lite.errors import InputError

TABLE_ENDINGS = (".tsv", ".tsv.gz", ".csv", ".csv.gz")


@dataclass(frozen=True)
class TableFiles(FileRecords):
    """Files, globs and folders of `.tsv` and `.csv` and their `.gz`, in UTF-8. A first line names the columns.

    Between tabs nothing is quoted. Between commas a field may stand in double quotes, over several lines too.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    """Names of the columns, for files without a line of names; with () they are called '0', '1', '2' ..."""
    separator: Literal["tab", "comma"] | None = None
    """Between columns; None goes by the file's ending, comma for .csv."""

    endings = TABLE_ENDINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns and len(set(self.columns)) < len(self.columns):
            raise InputError(f"columns={self.columns} names one of them twice; name each once")

    def records_in(self, path: InputFile) -> Iterator[tuple[int, dict[str, str]]]:
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

    def _rows(self, path: InputFile) -> Iterator[tuple[int, list[str]]]:
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

    endings = input_files.JSON_ENDINGS


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
                    problem = f"{short} ends before line {number}, which {long} has"
                    raise InputError(f"{problem}; give files that are parallel line by line")
                texts = [text for _, text in lines]
                if any(text.strip() for text in texts):
                    location = " with ".join(f"{file}:{number}" for file in files)
                    yield Record(location, dict(zip(self.fields, texts, strict=True)))

    def files(self) -> list[InputFile]:
        return list(itertools.chain.from_iterable(self._groups()))

    def shards(self) -> list[Source]:
        return [self]

    def _groups(self) -> list[tuple[InputFile, ...]]:
        """Parallel files, one for each field."""
        groups = [[file.resolve() for file in input_files.expand(path, ())] for path in self.paths]
        if len(set(map(len, groups))) == 1:
            return list(zip(*groups, strict=True))
        counts = " and ".join(f"{path!r} {len(files)}" for path, files in zip(self.paths, groups, strict=True))
        raise InputError(
            f"paths={self.paths} name unequal numbers of files ({counts}), so that they cannot be parallel; give as "
            "many for each field"
        )


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

    def shards(self) -> list[Source]:
        return [self]

    def files(self) -> list[InputFile]:
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


@dataclass(frozen=True)
class ConllFiles(FileRecords):
    """Files, globs and folders of sentences, a word with its columns a line and a blank line after each sentence.

    Fields are `tokens` and `tags`, lists of equal length. Before a sentence, lines that begin with '-DOCSTART-' or '# '
    are comments; within it, '#' is a word. CoNLL-U's ranges and empty words, whose first column is not a whole number
    ('1-2', '8.1'), are left out.
    """

    paths: tuple[str, ...]
    token_column: int = 0
    """Counted from 0, or from the end by a negative number; 1 in CoNLL-U."""
    tag_column: int = -1
    """3 for the universal parts of speech of CoNLL-U."""

    endings = tuple(ending + gz for gz in ("", ".gz") for ending in (".conll", ".conllu", ".txt", ".tsv"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.token_column == self.tag_column:
            raise InputError(f"token_column={self.token_column} is tag_column too; choose another one")

    def records_in(self, path: InputFile) -> Iterator[tuple[int, dict[str, list[str]]]]:
        is_conllu = path.name.lower().endswith((".conllu", ".conllu.gz"))
        for block in input_files.blocks(path):
            lines = [(number, text.rstrip()) for number, text in block]
            lines = list(itertools.dropwhile(lambda line: line[1].startswith(("# ", "-DOCSTART-")), lines))
            words = [
                self._word(f"{path}:{number}", text)
                for number, text in lines
                if not is_conllu or text.split("\t")[0].isdigit()
            ]
            if words:
                tokens, tags = map(list, zip(*words, strict=True))
                yield lines[0][0], {"tokens": tokens, "tags": tags}

    def _word(self, location: str, line: str) -> tuple[str, str]:
        columns = line.split("\t" if "\t" in line else None)
        for name in ("token_column", "tag_column"):
            column = getattr(self, name)
            # A sentence of one column has no tags, though its last column is there.
            if not -len(columns) <= column < len(columns) or len(columns) < 2:
                raise InputError(
                    f"{name}={column} is missing in {location}, which has {len(columns)} columns; set {name}, or "
                    "write word and tag in each line"
                )
        return columns[self.token_column], columns[self.tag_column]


@dataclass(frozen=True)
class SquadFiles(FileRecords):
    """Files, globs and folders of SQuAD's JSON, 1.1 or 2.0, and their `.gz`: a question an example.

    Fields are `id`, `title`, `context`, `question`, `answers` (texts) and `starts` (the first character of each in the
    context); both are empty for a question without an answer. As running text they are the contexts, each once.
    """

    paths: tuple[str, ...]
    parts: int = 1
    """The articles are dealt to so many parts in turn, so that training and held-out parts share no article."""
    part: int = 0
    """The part to read, from 0."""

    endings = (".json", ".json.gz")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.part < self.parts:
            raise InputError(f"part={self.part} is not one of parts={self.parts}; choose 0 to parts - 1")

    def __iter__(self) -> Iterator[Record]:
        for path in self.files():
            for questions in _articles(path)[self.part :: self.parts]:
                yield from questions

    def documents(self) -> Iterator[str]:
        contexts = dict.fromkeys(record.fields["context"].strip() for record in self)
        return (context for context in contexts if context)


def _articles(path: InputFile) -> list[list[Record]]:
    """The questions of each article; `InputError` where the file is not in SQuAD's format."""
    articles = []
    try:
        for article in json.loads(input_files.whole_text(path))["data"]:
            articles.append(records := [])
            for paragraph in article["paragraphs"]:
                title, context = article.get("title", ""), paragraph["context"]
                for question in paragraph["qas"]:
                    name, answers = question["id"], question.get("answers", [])
                    texts, starts = [one["text"] for one in answers], [one["answer_start"] for one in answers]
                    if question.get("is_impossible"):
                        texts, starts = [], []
                    fields = {"id": name, "title": title, "context": context, "question": question["question"]}
                    fields |= {"answers": texts, "starts": starts}
                    records.append(Record(f"question {name!r} of {path}", fields))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} is not JSON of SQuAD ({problem}); write data > paragraphs > context and qas > id, question, "
            "answers"
        ) from None
    return articles
