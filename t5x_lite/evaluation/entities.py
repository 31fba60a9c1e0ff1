"""F1 of named entities, by seqeval: an entity counts where its type and both of its ends are right.

Tjong Kim Sang and De Meulder 2003, section 3. `default` reads tags as conlleval.pl does, which makes an entity of
whatever may be one; `strict` takes none that the scheme does not allow.
"""

import warnings
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int

from t5x_lite.errors import InputError

Mode = Literal["default", "strict"]
Scheme = Literal["IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"]
Tags = Sequence[Sequence[str]]
"""Of each sentence, such as ["B-PER", "I-PER", "O"]."""


def entity_scores(
    predictions: Tags, references: Tags, *, mode: Mode = "default", scheme: Scheme = "IOB2"
) -> dict[str, float]:
    """`precision`, `recall` and `f1` over all entities, as shares of 1, and `accuracy` over tags.

    Raises `InputError` for another number of sentences or tags, a mode or a scheme that is not known.

    >>> said, right = [["B-PER", "I-PER", "O", "I-LOC"]], [["B-PER", "I-PER", "O", "B-LOC"]]
    >>> entity_scores(said, right)["f1"], entity_scores(said, right, mode="strict")["recall"]
    (1.0, 0.5)
    """
    check_scheme(mode, scheme)
    _check_lengths(predictions, references)
    from seqeval import metrics
    from seqeval import scheme as schemes

    said, right = ([list(sentence) for sentence in side] for side in (predictions, references))
    options = {"mode": "strict", "scheme": getattr(schemes, scheme)} if mode == "strict" else {}
    with warnings.catch_warnings():
        # No entities at all are a figure of 0, and none to complain about.
        warnings.simplefilter("ignore")
        figures = {
            "precision": metrics.precision_score(right, said, **options),
            "recall": metrics.recall_score(right, said, **options),
            "f1": metrics.f1_score(right, said, **options),
            "accuracy": metrics.accuracy_score(right, said),
        }
    return {name: float(value) for name, value in figures.items()}


def entity_counts(
    predictions: Tags, references: Tags, *, mode: Mode = "default", scheme: Scheme = "IOB2"
) -> Int[np.ndarray, "N 3"]:
    """Of each sentence, how many entities are right, how many were predicted, and how many there are.

    >>> entity_counts([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]]).tolist()
    [[1, 2, 1]]
    """
    check_scheme(mode, scheme)
    _check_lengths(predictions, references)
    from seqeval import scheme as schemes
    from seqeval.metrics.sequence_labeling import get_entities

    def entities(tags: Sequence[str]) -> set[tuple]:
        if mode == "default":
            return set(get_entities(list(tags)))
        found = schemes.Entities([list(tags)], getattr(schemes, scheme)).entities[0]
        return {entity.to_tuple()[1:] for entity in found}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = [(entities(said), entities(right)) for said, right in zip(predictions, references, strict=True)]
    return np.array([(len(said & right), len(said), len(right)) for said, right in pairs])


def check_scheme(mode: Mode, scheme: Scheme) -> None:
    """Raises `InputError` for a mode or a scheme that is not known."""
    for name, value, known in (("mode", mode, Mode), ("scheme", scheme, Scheme)):
        if value not in get_args(known):
            raise InputError(f"{name}={value!r} is not known; choose {', '.join(get_args(known))}")


def _check_lengths(predictions: Tags, references: Tags) -> None:
    if len(predictions) != len(references) or not references:
        raise InputError(
            f"{len(predictions)} tagged sentences do not go with {len(references)}; give one for each, and one or more"
        )
    for number, (said, right) in enumerate(zip(predictions, references, strict=True), start=1):
        if len(said) != len(right):
            raise InputError(f"sentence {number} has {len(right)} tags and {len(said)} predicted; give one for each")
