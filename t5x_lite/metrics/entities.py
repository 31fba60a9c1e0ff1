"""F1 of named entities, by seqeval: an entity counts where its type and both of its ends are right.

Tjong Kim Sang and De Meulder 2003, section 3. `default` reads tags as conlleval.pl does, which makes an entity of
whatever may be one; `strict` takes none that the scheme does not allow.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Int

from t5x_lite.errors import InputError
from t5x_lite.metrics.base import RatioMetric
from t5x_lite.metrics.labels import correct_labels
from t5x_lite.objectives.base import Predictions

Mode = Literal["default", "strict"]
Scheme = Literal["IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"]
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
    mode: ClassVar[Mode] = "default"

    def read(self, texts: Predictions) -> Predictions:
        tags = super().read(texts)
        return replace(tags, predicted=[entity_tags(sentence) for sentence in tags.predicted])

    def ratios(self, predictions: Predictions) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        correct, predicted, present = entity_counts(predictions.predicted, predictions.references, mode=self.mode).T
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
    mode = "strict"


def entity_counts(
    predictions: Tags, references: Tags, *, mode: Mode = "default", scheme: Scheme = "IOB2"
) -> Int[np.ndarray, "N 3"]:
    """Of each sentence, how many entities are correct, how many were predicted, and how many there are.

    Raises `InputError` for another number of sentences or tags, a mode or a scheme that is not known.

    >>> entity_counts([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]]).tolist()
    [[1, 2, 1]]
    """
    _check(mode, scheme, predictions, references)
    from seqeval import scheme as schemes
    from seqeval.metrics.sequence_labeling import get_entities

    def entities(tags: Sequence[str]) -> set[tuple]:
        if mode == "default":
            return set(get_entities(list(tags)))
        found = schemes.Entities([list(tags)], getattr(schemes, scheme)).entities[0]
        return {entity.to_tuple()[1:] for entity in found}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = [tuple(map(entities, pair)) for pair in zip(predictions, references, strict=True)]
    return np.array([(len(predicted & right), len(predicted), len(right)) for predicted, right in pairs])


def _check(mode: Mode, scheme: Scheme, predictions: Tags, references: Tags) -> None:
    for name, value, known in (("mode", mode, Mode), ("scheme", scheme, Scheme)):
        if value not in get_args(known):
            raise InputError(f"{name}={value!r} is not known; choose {', '.join(get_args(known))}")
    if len(predictions) != len(references) or not references:
        raise InputError(
            f"{len(predictions)} tagged sentences do not go with {len(references)}; give one for each, and one or more"
        )
    for number, (predicted, tags) in enumerate(zip(predictions, references, strict=True), start=1):
        if len(predicted) != len(tags):
            raise InputError(
                f"sentence {number} has {len(tags)} tags and {len(predicted)} predicted; give one for each"
            )


def entity_tags(tags: Sequence[str]) -> list[str]:
    """Tags of entities; what is none, such as 'BPER', counts as 'O'.

    >>> entity_tags(["B-PER", "BPER", "-", "O"])
    ['B-PER', 'O', 'O', 'O']
    """
    return [tag if _TAG.fullmatch(tag) else "O" for tag in tags]
