"""Texts and pairs of texts with a label, or with a number."""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from t5x_lite.data.layouts.base import (
    Column,
    Layout,
    RowBuilder,
    RowSpec,
    SpecialIds,
    UnfitDocumentError,
    check_length,
    encode_each,
    too_many_ids,
    truncated_lengths,
)
from t5x_lite.data.layouts.sentences import SentenceRule
from t5x_lite.data.records.base import Record, Records, Source, field_of, name_of, text_in
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary


class LabeledText(NamedTuple):
    """An example as a task reads it, and where it stands."""

    location: str
    texts: tuple[str, ...]
    """One text, or two."""
    label: float
    """The number of its class, or the number that is to be predicted."""
    name: Any = None
    """See `name_of`."""


@dataclass(frozen=True)
class LabeledTexts(Source):
    """Examples of a task on whole texts: sentiment, inference, paraphrase, similarity."""

    examples: Records
    """TableFiles, JsonlFiles or ParallelFiles."""
    texts: tuple[str, ...] = ("text",)
    """The field of the text, or those of a pair in their order."""
    label: str = "label"
    """The field of the label; empty where labels are not known, as in a benchmark's test set."""
    labels: tuple[str, ...] = ()
    """The classes by number, as they are written in the data; empty: labels are numbers that are to be predicted."""
    left_out: tuple[str, ...] = ()
    """Labels whose examples are left out, such as '-' in SNLI, on which its annotators did not agree."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.texts) <= 2:
            raise InputError(f"texts={self.texts} are {len(self.texts)} fields; name one, or the two of a pair")
        check_labels(self.labels)
        if both := set(self.labels) & set(self.left_out):
            raise InputError(
                f"left_out={self.left_out} has {sorted(both)[0]!r}, which labels has too; drop it from one"
            )

    @property
    def has_answers(self) -> bool:
        return bool(self.label)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels

    def labeled(self) -> Iterator[LabeledText]:
        """Every example that is not left out. Raises `InputError`, at the end, for labels that are not known, which it
        counts; for what is no number; and where there is no example."""
        numbers = {label: float(number) for number, label in enumerate(self.labels)}
        unknown, first, found = Counter[str](), "", False
        for example in self.examples:
            written = str(field_of(example, self.label, "label")).strip() if self.label else ""
            if self.label and written in self.left_out:
                continue
            label = 0.0
            if self.label:
                label = numbers.get(written) if self.labels else self._number(example, written)
            if label is None:
                unknown[written] += 1
                first = first or example.location
            elif not unknown:
                found = True
                texts = tuple(text_in(example, name, "texts") for name in self.texts)
                yield LabeledText(example.location, texts, label, name_of(example))
        if unknown:
            remedy = "name them in labels, or in left_out"
            raise unknown_labels("label", self.label, self.labels, unknown, first, remedy)
        if not found:
            raise InputError(f"{self.examples} holds no examples; give some")

    def documents(self) -> Iterator[str]:
        return (text for example in self.labeled() for text in example.texts)

    def location(self, number: int) -> str:
        """Where the example with this number, from 1, stands; found by reading up to it."""
        return next(itertools.islice(self.labeled(), number - 1, None)).location

    def fingerprint(self) -> str:
        parts = (self.examples.fingerprint(), self.texts, self.label, self.labels, self.left_out)
        return hashlib.blake2b(f"LabeledTexts {parts}".encode(), digest_size=16).hexdigest()

    def _number(self, example: Record, written: str) -> float:
        try:
            number = float(written)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise InputError(
                f"label={written!r} in {example.location} is no number; correct it, leave such examples out by "
                "left_out, or name the classes in labels"
            )
        return number


def check_labels(labels: tuple[str, ...]) -> None:
    """Raises `InputError` for classes of which one is named twice, or there is but one."""
    if len(set(labels)) < len(labels):
        raise InputError(f"labels={labels} names one of them twice; name each once")
    if len(labels) == 1:
        raise InputError(f"labels={labels} is one class, of which there is nothing to learn; name two or more")


def unknown_labels(
    option: str, field: str, labels: tuple[str, ...], unknown: Mapping[str, int], first: str, remedy: str
) -> InputError:
    """The error for labels in the data, by how often they stand there, that the task does not know."""
    counts = ", ".join(f"{label!r} {count} times" for label, count in Counter(unknown).most_common(20))
    more = f" and {len(unknown) - 20} others" if len(unknown) > 20 else ""
    return InputError(
        f"{option}={field!r} has labels that labels={labels} does not know: {counts}{more}, the first in {first}; "
        f"{remedy}"
    )


@dataclass(frozen=True)
class Labeled(Layout):
    """An example a row: `[CLS] A [SEP] pad ...` or `[CLS] A [SEP] B [SEP] pad ...` (Devlin et al. 2019, figure 4), and
    its `label`.

    What is too long loses the ends of its texts, a token at a time of the longer one; the store counts such examples.

    >>> import numpy as np
    >>> rows = Labeled(8).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array([10, 11], np.int32), np.array([12, 13, 14, 15], np.int32), 2.5])
    >>> [(row["ids"].tolist(), row["label"].item()) for row in rows.take()]
    [([2, 10, 11, 3, 12, 13, 14, 3], 2.5)]
    """

    length: int
    """Ids of a row, special ones included."""

    source_type: ClassVar[type] = LabeledTexts
    source_has: ClassVar[str] = "labels"
    source_remedy: ClassVar[str] = "give LabeledTexts"
    unit_name: ClassVar[str] = "examples"
    has_examples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_length(self.length, 8, "an example")

    @property
    def spec(self) -> RowSpec:
        return {"ids": Column((self.length,), is_ids=True), "label": Column((), np.float32)}

    def examples(self, source: LabeledTexts) -> Iterator[LabeledText]:
        return source.labeled()

    def content(self, example: LabeledText) -> str:
        return "\0".join(example.texts)

    def answer(self, example: LabeledText) -> tuple[str, str]:
        return self.content(example), str(example.label)

    def tokenize(
        self, examples: list[LabeledText], tokenizer: Tokenizer, sentences: SentenceRule
    ) -> Iterator[list[Any]]:
        """The ids of one text or two, and the label."""
        texts = encode_each([example.texts for example in examples], tokenizer)
        return ([*ids, example.label] for ids, example in zip(texts, examples, strict=True))

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return LabeledRows(self.length, SpecialIds.of(vocabulary))


class LabeledRows(RowBuilder):
    """See `Labeled`, and `Delimited`, whose rows have a `delimiter` between two texts."""

    def __init__(
        self, length: int, special: SpecialIds, *, delimiter: int | None = None, pairs_only: bool = False
    ) -> None:
        super().__init__()
        self._length, self._special, self._delimiter, self._pairs_only = length, special, delimiter, pairs_only

    def add(self, document: list[Any]) -> None:
        *texts, label = document
        if self._pairs_only and len(texts) < 2:
            raise UnfitDocumentError(
                "it has one text, which cannot be read in both orders; name the fields of a pair in data.source.texts, "
                "or set objective.both_orders to False"
            )
        self.documents += 1
        lengths = list(map(len, texts))
        self.tokens += sum(lengths)
        room = self._length - 1 - len(texts)
        if sum(lengths) > room:
            self._count_too_long(too_many_ids(sum(lengths) + 1 + len(texts), self._length))
        kept = truncated_lengths(lengths, room)
        cut = [text[:length] for text, length in zip(texts, kept, strict=True)]
        ids = self._special.join(self._length, *cut, delimiter=self._delimiter)
        self._emit(room - sum(kept), ids=ids, label=np.float32(label))


DELIMITER_IDS = ("start", "delimiter", "extract")
"""What begins, divides and ends the texts of a decoder's rows (Radford et al. 2018, section 3.3): the three ids right
behind the vocabulary's, which no pretraining has seen."""


def delimiter_ids(vocabulary: Vocabulary) -> tuple[SpecialIds, int]:
    """(`start` and `extract` in the places of [CLS] and [SEP], `delimiter`)."""
    return SpecialIds(vocabulary.size, vocabulary.size + 2, vocabulary.pad_id), vocabulary.size + 1


@dataclass(frozen=True)
class Delimited(Labeled):
    """An example a row as a decoder reads it: `start A extract pad ...` or `start A delimiter B extract pad ...`, and
    its `label`.

    >>> rows = Delimited(8).start(Vocabulary(size=100))
    >>> rows.add([np.array([10, 11], np.int32), np.array([12], np.int32), 1.0])
    >>> rows.take()[0]["ids"].tolist()
    [100, 10, 11, 101, 12, 102, 0, 0]
    """

    pairs: bool = False
    """Every example must have two texts."""

    added_ids: ClassVar[tuple[str, ...]] = DELIMITER_IDS

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        special, delimiter = delimiter_ids(vocabulary)
        return LabeledRows(self.length, special, delimiter=delimiter, pairs_only=self.pairs)
