"""Sentences of words, each with a tag: named entities, parts of speech."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from t5x_lite.data.records.tables import Example, Examples, field_of
from t5x_lite.data.records.text import Source
from t5x_lite.data.tasks.classification import check_labels, unknown_labels
from t5x_lite.errors import InputError


class TaggedSentence(NamedTuple):
    """An example as a task reads it, and where it stands."""

    place: str
    words: tuple[str, ...]
    tags: tuple[int, ...]
    """Of each word, by number."""


@dataclass(frozen=True)
class TaggedWords(Source):
    """Examples of a task on words, which are told apart already."""

    examples: Examples
    """ConllExamples, or JsonlExamples with lists."""
    labels: tuple[str, ...]
    """The tags by number, as they are written in the data."""
    words: str = "tokens"
    """The field of the words."""
    tags: str = "tags"
    """The field of their tags; empty where they are not known."""

    def __post_init__(self) -> None:
        check_labels(self.labels)
        if not self.labels:
            raise InputError("labels=() names no tags; name those of the data")

    @property
    def has_answers(self) -> bool:
        return bool(self.tags)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels

    def tagged(self) -> Iterator[TaggedSentence]:
        """Every example. Raises `InputError`, at the end, for tags that are not known, which it counts; for words and
        tags that do not go together; and where there is no example."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        unknown, first, found = Counter[str](), "", False
        for example in self.examples:
            words = self._column(example, "words")
            tags = self._column(example, "tags") if self.tags else self.labels[:1] * len(words)
            if len(words) != len(tags):
                raise InputError(
                    f"tags={self.tags!r} has {len(tags)} tags for {len(words)} words in {example.place}; write one for "
                    "each"
                )
            if new := [tag for tag in tags if tag not in numbers]:
                unknown.update(new)
                first = first or example.place
            elif not unknown:
                found = True
                yield TaggedSentence(example.place, words, tuple(numbers[tag] for tag in tags))
        if unknown:
            raise unknown_labels("tags", self.tags, self.labels, unknown, first, "name them in labels")
        if not found:
            raise InputError(f"{self.examples} holds no examples; give some")

    def documents(self) -> Iterator[str]:
        return (" ".join(sentence.words) for sentence in self.tagged())

    def place(self, number: int) -> str:
        """Where the example with this number, from 1, stands; found by reading up to it."""
        return next(itertools.islice(self.tagged(), number - 1, None)).place

    def fingerprint(self) -> str:
        parts = (self.examples.fingerprint(), self.labels, self.words, self.tags)
        return hashlib.blake2b(f"TaggedWords {parts}".encode(), digest_size=16).hexdigest()

    def _column(self, example: Example, option: str) -> tuple[str, ...]:
        name = getattr(self, option)
        column = field_of(example, name, option)
        if not (isinstance(column, list | tuple) and column and all(isinstance(item, str) for item in column)):
            raise InputError(
                f"{option}={name!r} is {column!r} in {example.place}; set {option} to a field with a list of texts"
            )
        return tuple(column)
