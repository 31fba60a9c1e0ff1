"""How often a search finds what belongs to the question."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from t5x_lite.metrics.base import RatioMetric, Ratios
from t5x_lite.objectives.base import Predictions

FIRST = (1, 5, 10)
"""How many results are looked at."""
DIRECTIONS = ("text", "image")
"""What is searched for: the text of a picture, or the picture of a text."""


@dataclass(frozen=True)
class Retrieval(RatioMetric):
    """Recall at 1, 5 and 10, both ways: the share of pictures whose text is among the first K of all texts, and of
    texts whose picture is among the first K of all pictures (Karpathy and Fei-Fei 2015, section 4.1).

    Figures depend on how many there are: a guess finds K of them. In the intervals these stay as they are, and the
    questions are drawn.
    """

    name = "retrieval"
    compares = ("ranks",)
    reads_texts = False
    labels: ClassVar = {f"{of}_recall_{k}": f"{of} recall@{k}" for of in DIRECTIONS for k in FIRST}

    def ratios(self, predictions: Predictions) -> Ratios:
        ranks = np.array(predictions.predicted)
        return {f"{of}_recall_{k}": (ranks[:, number] < k, 1) for number, of in enumerate(DIRECTIONS) for k in FIRST}
