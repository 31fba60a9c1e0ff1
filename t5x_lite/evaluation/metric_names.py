"""What written answers can be scored by (see `t5x_lite.evaluation.text_metrics`)."""

from dataclasses import dataclass
from typing import Literal

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
class PartMetrics:
    """What answers to one part of a mixture are scored by."""

    part: str
    """Its name in the mixture."""
    text_metrics: tuple[TextMetric, ...]
    """In place of those of all parts; empty decodes nothing of it."""
