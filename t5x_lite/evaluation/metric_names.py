"""What predictions are scored by: the names of the built-in metrics of texts, and the base of one's own metrics."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

TextMetric = Literal[
    "bleu",
    "chrf",
    "rouge",
    "exact_match",
    "f1",
    "macro_f1",
    "matthews",
    "pearson",
    "spearman",
    "squad",
    "tags",
    "entities",
    "strict_entities",
    "group_match",
    "referent",
]


@dataclass(frozen=True)
class Metric(ABC):
    """A metric of one's own: a subclass in a file of one's own, bound in a config by `Evaluation(metrics=(...,))`.

    It counts in held-out records, in `evaluate` with its bootstrap interval, and in the mean over a mixture.

    >>> @dataclass(frozen=True)
    ... class Length(Metric):
    ...     name = "length"
    ...
    ...     def compute(self, predictions, references):
    ...         return sum(map(len, predictions)) / max(sum(len(texts[0]) for texts in references), 1)
    >>> Length().compute(["a cat"], [("a dog or a cat",)])
    0.35714285714285715
    """

    name: ClassVar[str]
    """Of its figure in records."""
    in_per_cent: ClassVar[bool] = False
    """Whether the figure goes from 0 to 100, not from 0 to 1."""

    @abstractmethod
    def compute(self, predictions: Sequence[Any], references: Sequence[Any]) -> float:
        """The figure over all examples, of which there is at least one.

        Args:
          predictions: by example: the text that the model writes; of a head the number of a class or choice, a number,
            the tags of words, or the text of a span.
          references: in the same form, but for texts and spans a sequence of all correct ones.
        """


def figures_in_per_cent() -> set[str]:
    """The names of one's own metrics, so far as they are imported, whose figures go from 0 to 100."""
    found, todo = set(), [Metric]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        if cls.in_per_cent:
            found.add(cls.name)
    return found


@dataclass(frozen=True)
class PartMetrics:
    """What answers to one part of a mixture are scored by."""

    part: str
    """Its name in the mixture."""
    text_metrics: tuple[TextMetric, ...]
    """In place of those of all parts; empty decodes nothing of it."""
