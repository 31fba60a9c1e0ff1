"""F1 of named entities, by seqeval: an entity counts where its type and both of its ends are right.

Tjong Kim Sang and De Meulder 2003, section 3. By default tags are read as conlleval.pl does, which makes an entity of
whatever may be one; strictly, only of what IOB2 allows.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.metrics.base import RatioMetric, Ratios
from t5x_lite.metrics.labels import correct_labels
from t5x_lite.objectives.base import Predictions

Tags = Sequence[Sequence[str]]
"""Of each sentence, such as ["B-PER", "I-PER", "O"]."""

_TAG = re.compile(r"[BIESLUM]-\S+")


@dataclass(frozen=True)
class Entities(RatioMetric):
    """Precision, recall and F1 of entities, and the share of words with the correct tag; tags are those of IOB2.

    >>> predicted, references = [["B-PER", "I-PER", "O", "I-LOC"]], [["B-PER", "I-PER", "O", "B-LOC"]]
    >>> Entities().figures(Predictions("tags", predicted, references))["entities_f1"]
    1.0
    >>> StrictEntities().figures(Predictions("tags", predicted, references))["strict_entities_recall"]
    0.5
    """

    name = "entities"
    compares = ("tags",)
    labels: ClassVar = {"entities_f1": "entities F1"}
    strict: ClassVar[bool] = False

    def read(self, texts: Predictions) -> Predictions:
        tags = super().read(texts)
        # What is not the tag of an entity, such as 'BPER', counts as 'O'.
        predicted = [[tag if _TAG.fullmatch(tag) else "O" for tag in sentence] for sentence in tags.predicted]
        return replace(tags, predicted=predicted)

    def ratios(self, predictions: Predictions) -> Ratios:
        from seqeval import scheme
        from seqeval.metrics.sequence_labeling import get_entities

        def entities(tags: Sequence[str]) -> set[tuple]:
            if not self.strict:
                return set(get_entities(list(tags)))
            return {entity.to_tuple()[1:] for entity in scheme.Entities([list(tags)], scheme.IOB2).entities[0]}

        counts = []
        pairs = zip(predictions.predicted, predictions.references, strict=True)
        for number, (tags, right) in enumerate(pairs, start=1):
            if len(tags) != len(right):
                raise InputError(
                    f"sentence {number} has {len(right)} tags and {len(tags)} predicted; give one for each"
                )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted, present = entities(tags), entities(right)
            counts.append((len(predicted & present), len(predicted), len(present)))
        correct, predicted, present = np.array(counts).T
        ratios = {
            "precision": (correct, predicted),
            "recall": (correct, present),
            "f1": (2 * correct, predicted + present),
            "accuracy": correct_labels(predictions),
        }
        return {f"{self.name}_{figure}": ratio for figure, ratio in ratios.items()}


@dataclass(frozen=True)
class StrictEntities(Entities):
    """The same of entities that IOB2 allows."""

    name = "strict_entities"
    labels: ClassVar = {}
    strict = True
