"""Texts and pairs of texts with a label, or with a number."""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from t5x_lite.data.records.tables import Example, Examples, field_of, name_of, text_in
from t5x_lite.data.records.text import Source
from t5x_lite.errors import InputError


class LabeledText(NamedTuple):
    """An example as a task reads it, and where it stands."""

    place: str
    texts: tuple[str, ...]
    """One text, or two."""
    label: float
    """The number of its class, or the number that is to be predicted."""
    name: Any = None
    """See `name_of`."""


@dataclass(frozen=True)
class LabeledTexts(Source):
    """Examples of a task on whole texts: sentiment, inference, paraphrase, similarity."""

    examples: Examples
    """TableExamples, JsonlExamples or ParallelExamples."""
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
                first = first or example.place
            elif not unknown:
                found = True
                texts = tuple(text_in(example, name, "texts") for name in self.texts)
                yield LabeledText(example.place, texts, label, name_of(example))
        if unknown:
            remedy = "name them in labels, or in left_out"
            raise unknown_labels("label", self.label, self.labels, unknown, first, remedy)
        if not found:
            raise InputError(f"{self.examples} holds no examples; give some")

    def documents(self) -> Iterator[str]:
        return (text for example in self.labeled() for text in example.texts)

    def place(self, number: int) -> str:
        """Where the example with this number, from 1, stands; found by reading up to it."""
        return next(itertools.islice(self.labeled(), number - 1, None)).place

    def fingerprint(self) -> str:
        parts = (self.examples.fingerprint(), self.texts, self.label, self.labels, self.left_out)
        return hashlib.blake2b(f"LabeledTexts {parts}".encode(), digest_size=16).hexdigest()

    def _number(self, example: Example, written: str) -> float:
        try:
            number = float(written)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise InputError(
                f"label={written!r} in {example.place} is no number; correct it, leave such examples out by left_out, "
                "or name the classes in labels"
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
