"""What written answers can be scored by (see `t5x_lite.training.text_metrics`)."""

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
    "group_match",
    "referent",
]
