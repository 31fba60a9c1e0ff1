"""Examples in the formats of annotated corpora: tagged words (CoNLL), questions on paragraphs (SQuAD)."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from t5x_lite.data.records import input_files
from t5x_lite.data.records.base import Record
from t5x_lite.data.records.input_files import FileRecords
from t5x_lite.errors import InputError


@dataclass(frozen=True)
class ConllFiles(FileRecords):
    """Files, globs and folders of sentences, a word with its columns a line and a blank line after each sentence.

    Fields are `tokens` and `tags`, lists of equal length. Before a sentence, lines that begin with '-DOCSTART-' or '# '
    are comments; within it, '#' is a word. CoNLL-U's ranges and empty words, whose first column is not a whole number
    ('1-2', '8.1'), are left out.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'ner/*.conll', or folders."""
    token_column: int = 0
    """Counted from 0, or from the end by a negative number; 1 in CoNLL-U."""
    tag_column: int = -1
    """3 for the universal parts of speech of CoNLL-U."""

    endings: ClassVar[tuple[str, ...]] = tuple(
        ending + gz for gz in ("", ".gz") for ending in (".conll", ".conllu", ".txt", ".tsv")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.token_column == self.tag_column:
            raise InputError(f"token_column={self.token_column} is tag_column too; choose another one")

    def records_in(self, path: Path) -> Iterator[tuple[int, dict[str, list[str]]]]:
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
    context); both are empty for a question without an answer.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'squad/*.json', or folders."""
    parts: int = 1
    """The articles are dealt to so many parts in turn, so that training and held-out parts share no article."""
    part: int = 0
    """The part to read, from 0."""

    endings: ClassVar[tuple[str, ...]] = (".json", ".json.gz")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.part < self.parts:
            raise InputError(f"part={self.part} is not one of parts={self.parts}; choose 0 to parts - 1")

    def __iter__(self) -> Iterator[Record]:
        for path in self.files():
            for questions in _articles(path)[self.part :: self.parts]:
                yield from questions


def _articles(path: Path) -> list[list[Record]]:
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
