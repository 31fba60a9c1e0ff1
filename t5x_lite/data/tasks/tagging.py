"""Sentences of words, each with a tag: named entities, parts of speech."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import Column, EncoderRows, RowSpec, encode_each, with_blanks
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Record, UnknownLabelError, check_labels, field_of
from t5x_lite.data.tasks.base import TaskLayout, TaskSource
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer


class TaggedSentence(NamedTuple):
    """Words and their tags."""

    words: tuple[str, ...]
    tags: tuple[int, ...]

    @property
    def texts(self) -> tuple[str]:
        return (" ".join(self.words),)


@dataclass(frozen=True)
class TaggedWords(TaskSource):
    """Examples of a task on words, which come as lists."""

    labels: tuple[str, ...]
    """The tags by number, as they are written in the data."""
    words: str = "tokens"
    """The field of the words."""
    tags: str = "tags"
    """The field of their tags; empty where they are not known."""

    answer_option = "tags"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels)
        if not self.labels:
            raise InputError("labels=() names no tags; name those of the data")

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels

    def convert(self, record: Record) -> list[TaggedSentence]:
        words = self._column(record, "words")
        tags = self._column(record, "tags") if self.tags else self.labels[:1] * len(words)
        if len(words) != len(tags):
            problem = f"has {len(tags)} tags for {len(words)} words in {record.location}"
            raise InputError(f"tags={self.tags!r} {problem}; write one for each")
        if unknown := [tag for tag in tags if tag not in self.labels]:
            raise UnknownLabelError("tags", self.tags, self.labels, unknown, "name them in labels")
        return [TaggedSentence(words, tuple(map(self.labels.index, tags)))]

    def _column(self, example: Record, option: str) -> tuple[str, ...]:
        name = getattr(self, option)
        column = field_of(example, name, option)
        if isinstance(column, list | tuple) and column and all(isinstance(item, str) for item in column):
            return tuple(column)
        raise InputError(
            f"{option}={name!r} is {column!r} in {example.location}; set {option} to a field with a list of texts"
        )


class TaggedRows(EncoderRows):
    def add(self, document: list[np.ndarray]) -> None:
        ids, sizes, tags = document
        self.documents += 1
        self.tokens += len(ids)
        length, room = self._layout.length, self._layout.length - 2
        if len(over := np.flatnonzero(sizes > room)):
            self._count_too_long(
                f"word {over[0] + 1} has {sizes[over[0]]} ids and length={length} (the objective's input_length) "
                f"holds {room}"
            )
        words = [word[:room] for word in np.split(ids, np.cumsum(sizes)[:-1])]
        while words:
            ends = np.cumsum([len(word) for word in words])
            count = int((ends <= room).sum())
            tags_of_row = np.full(length, -1, np.int32)
            tags_of_row[self._special.start() + np.array([0, *ends[: count - 1]])] = tags[:count]
            joined = self._special.join(length, np.concatenate(words[:count]))
            self._emit(room - int(ends[count - 1]), ids=joined, tags=tags_of_row, example=np.int32(self.documents - 1))
            words, tags = words[count:], tags[count:]


@dataclass(frozen=True)
class Tagged(TaskLayout):
    """Words and their tags: `[CLS] word word ... [SEP] pad ...` in `ids`, and in `tags` the number of each word's tag
    where its first piece stands (Devlin et al. 2019, section 5.3), else -1.

    A sentence that is too long goes on in the next row, where a word ends; `example`, the number of the sentence from
    0, says which rows belong together.

    >>> import numpy as np
    >>> from t5x_lite.data import Vocabulary
    >>> rows = Tagged(8).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array([10, 11, 12], np.int32), np.array([1, 2], np.int32), np.array([0, 4], np.int32)])
    >>> [{name: column.tolist() for name, column in row.items()} for row in rows.take()]
    [{'ids': [2, 10, 11, 12, 3, 0, 0, 0], 'tags': [-1, 0, 4, -1, -1, -1, -1, -1], 'example': 0}]
    """

    source_type = TaggedWords
    builder = TaggedRows
    too_long_means = "have a word that is longer than a row, and cut"

    @property
    def spec(self) -> RowSpec:
        return super().spec | {"tags": Column((self.length,)), "example": Column(())}

    def answer(self, example: TaggedSentence) -> tuple[str, str]:
        return self.content(example), str(example.tags)

    def tokenize(self, examples: list[Any], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        """The ids of all words, how many each has, and their tags. A word without ids becomes the unknown token."""
        unknown = np.array([tokenizer.vocabulary.unk_id], np.int32)
        words = encode_each([with_blanks(example.words) for example in examples], tokenizer)
        for of_words, example in zip(words, examples, strict=True):
            pieces = [ids if len(ids) else unknown for ids in of_words]
            sizes, tags = np.array([len(ids) for ids in pieces], np.int32), np.array(example.tags, np.int32)
            yield [np.concatenate(pieces), sizes, tags]
