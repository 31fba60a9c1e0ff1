"""Examples in the formats of annotated corpora: tagged words (CoNLL), questions on paragraphs (SQuAD)."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from t5x_lite.data.records import input_files
from t5x_lite.data.records.base import Record
from t5x_lite.data.records.input_files import FileRecords
from t5x_lite.errors import InputError

CONLL_ENDINGS = (".conll", ".conllu", ".txt", ".tsv", ".conll.gz", ".conllu.gz", ".txt.gz", ".tsv.gz")


@dataclass(frozen=True)
class ConllFiles(FileRecords):
    """Files, globs and folders of sentences a word a line, with columns, and a blank line behind each sentence.

    Fields are `tokens` and `tags`, lists of equal length. In front of a sentence, lines that begin with '-DOCSTART-' or
    '# ' are comments; within it, '#' is a word. CoNLL-U's ranges and empty words, whose first column is no whole number
    ('1-2', '8.1'), are left out.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'ner/*.conll', or folders."""
    token_column: int = 0
    """Counted from 0, or from the end by a negative number; 1 in CoNLL-U."""
    tag_column: int = -1
    """The same; 3 for the universal parts of speech of CoNLL-U."""

    endings: ClassVar[tuple[str, ...]] = CONLL_ENDINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.token_column == self.tag_column:
            raise InputError(f"token_column={self.token_column} is tag_column too; choose another one")

    def __iter__(self) -> Iterator[Record]:
        for path in self.files():
            is_conllu = path.name.lower().endswith((".conllu", ".conllu.gz"))
            for first, words in _sentences(path):
                pairs = [
                    self._word(path, first + offset, line.split("\t" if "\t" in line else None))
                    for offset, line in words
                    if not (is_conllu and not line.split("\t")[0].isdigit())
                ]
                if pairs:
                    tokens, tags = map(list, zip(*pairs, strict=True))
                    yield Record(f"{path}:{first}", {"tokens": tokens, "tags": tags})

    def _word(self, path: Path, number: int, columns: list[str]) -> tuple[str, str]:
        for name in ("token_column", "tag_column"):
            column = getattr(self, name)
            # A sentence of one column has no tags, though its last column is there.
            if not -len(columns) <= column < len(columns) or len(columns) < 2:
                raise InputError(
                    f"{name}={column} is missing in {path}:{number}, which has {len(columns)} columns; set {name}, or "
                    "write word and tag in each line"
                )
        return columns[self.token_column], columns[self.tag_column]


def _sentences(path: Path) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """(number of the first line, (offset, line) of each word) of every sentence."""
    sentence: list[tuple[int, str]] = []
    first = 1
    for number, line in itertools.chain(input_files.lines(path), [(0, "")]):
        if not line.strip():
            if sentence:
                yield first, sentence
                sentence = []
        elif sentence or not line.startswith(("# ", "-DOCSTART-")):
            first = first if sentence else number
            sentence.append((number - first, line.rstrip()))


@dataclass(frozen=True)
class SquadFiles(FileRecords):
    """Files, globs and folders of SQuAD's JSON, 1.1 or 2.0, and their `.gz`: a question an example.

    Fields are `id`, `title`, `context`, `question`, `answers` (texts) and `starts` (where each begins in the context,
    in characters); of a question without an answer both are empty.
    """

    paths: tuple[str, ...]
    """Files, globs such as 'squad/*.json', or folders."""
    parts: int = 1
    """Parts that the articles are dealt out to, one by one: what is learned and what is held out share no article."""
    part: int = 0
    """The part that is read, from 0."""

    endings: ClassVar[tuple[str, ...]] = (".json", ".json.gz")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.part < self.parts:
            raise InputError(f"part={self.part} is not one of parts={self.parts}; choose 0 to parts - 1")

    def __iter__(self) -> Iterator[Record]:
        for path in self.files():
            for article in _articles(path)[self.part :: self.parts]:
                for paragraph in article["paragraphs"]:
                    for question in paragraph["qas"]:
                        answers = [] if question.get("is_impossible") else question.get("answers", [])
                        yield Record(
                            f"question {question['id']!r} of {path}",
                            {
                                "id": question["id"],
                                "title": article.get("title", ""),
                                "context": paragraph["context"],
                                "question": question["question"],
                                "answers": [answer["text"] for answer in answers],
                                "starts": [answer["answer_start"] for answer in answers],
                            },
                        )


def _articles(path: Path) -> list[dict[str, Any]]:
    """The articles of a file, known to have the keys that are read; `InputError` where it is not of SQuAD's."""
    try:
        articles = json.loads(input_files.whole_text(path))["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                _ = paragraph["context"], [(question["id"], question["question"]) for question in paragraph["qas"]]
                for question in paragraph["qas"]:
                    _ = [(answer["text"], answer["answer_start"]) for answer in question.get("answers", [])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} is not JSON of SQuAD ({problem}); write data > paragraphs > context and qas > id, question, "
            "answers"
        ) from None
    return articles
