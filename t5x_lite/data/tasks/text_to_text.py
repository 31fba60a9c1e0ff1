"""Pairs of texts from examples of a task."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from t5x_lite.data.records.base import Record, Records
from t5x_lite.data.records.pairs import EvalExample, PairRecord, PairSource
from t5x_lite.data.tasks.classification import unknown_labels
from t5x_lite.data.tasks.templates import PromptTemplate, UnknownLabelError


@dataclass(frozen=True)
class ExamplePairs(PairSource):
    """Examples of a task in words, for text to text."""

    examples: Records
    """TableFiles, JsonlFiles, Tfds, ConllFiles, SquadFiles and others."""
    wording: PromptTemplate
    """LabelTemplate, NumberTemplate, AnswerTemplate, TagTemplate, CoreferenceTemplate or TextTemplate."""

    def records(self) -> Iterator[PairRecord]:
        pairs = ((example, pair) for example, found in self._worded(self.wording.pairs) for pair in found)
        return (PairRecord((), number, *pair) for number, (_, pair) in enumerate(pairs, start=1))

    def asked(self) -> Iterator[EvalExample]:
        """What is scored of each example; `InputError` as `pairs`."""
        return (asked for _, asked in self.asked_examples())

    def asked_examples(self, *, unlabeled: bool = False) -> Iterator[tuple[Record, EvalExample]]:
        """The same beside the example; of unlabeled ones, of which nobody knows what is right, all."""
        if unlabeled:
            yield from ((one, EvalExample(self.prefix + self.wording.read(one), ())) for one in self.examples)
            return
        for example, found in self._worded(self.wording.asked):
            yield from ((example, one._replace(text=self.prefix + one.text)) for one in found)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The words that answer, by class; None where there are no classes."""
        return self.wording.answers or None

    def _format_location(self, record: PairRecord) -> str:
        places = (example.location for example, found in self._worded(self.wording.pairs) for _ in found)
        return next(itertools.islice(places, record.number - 1, None))

    def _worded(self, words: Callable[[Record], Iterator[Any]]) -> Iterator[tuple[Record, list[Any]]]:
        """Each example and what the wording makes of it; raises `InputError`, at the end, for labels that are not
        known, which it counts."""
        unknown, first = Counter[str](), ""
        for example in self.examples:
            try:
                found = list(words(example))
            except UnknownLabelError as error:
                unknown[error.label] += 1
                first = first or example.location
                continue
            if not unknown:
                yield example, found
        if unknown:
            labels = getattr(self.wording, "labels", self.wording.answers)
            remedy = "name them in labels, or in left_out"
            raise unknown_labels("label", getattr(self.wording, "label", ""), labels, unknown, first, remedy)

    def fingerprint(self) -> str:
        parts = (self.examples.fingerprint(), self.wording, self.prefix, self.empty)
        return hashlib.blake2b(f"ExamplePairs {parts}".encode(), digest_size=16).hexdigest()
