"""A linear probe: how much of a task a linear classifier reads off features that were not made for it."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from t5x_lite.errors import InputError
from t5x_lite.metrics.base import Figures, Intervals
from t5x_lite.metrics.entities import Tags
from t5x_lite.metrics.scores import score, score_intervals
from t5x_lite.objectives import Predictions


@dataclass(frozen=True)
class LinearProbe:
    """Logistic regression on features with mean 0 and variance 1 in training, by scikit-learn."""

    fitted: Any
    converged: bool
    """Whether it stopped because the loss no longer fell, and not at the most iterations."""

    def predict(self, features: Float[np.ndarray, "N F"]) -> np.ndarray:
        """The label of each row."""
        return self.fitted.predict(features)


def fit_probe(
    features: Float[np.ndarray, "N F"], labels: Sequence[str], *, l2: float = 1.0, max_iterations: int = 1000
) -> LinearProbe:
    """The probe that fits some labels. It is the same every time: its loss has one minimum, and it begins at 0.

    Args:
      l2: what half the sum of squared weights counts beside the summed loss of all rows; scikit-learn's C is 1 / l2.
      max_iterations: of L-BFGS, at most.
    """
    if not l2 > 0:
        raise InputError(f"l2={l2} is not positive; choose e.g. 1.0")
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=1.0 / l2, max_iter=max_iterations))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        probe.fit(features, np.asarray(labels))
    return LinearProbe(probe, not any(issubclass(one.category, ConvergenceWarning) for one in caught))


def check_labels(train: Sequence[str], test: Sequence[str], *, what: str = "labels") -> None:
    """Raises `InputError` where nothing can be learned, or measured: few examples, one label alone, or labels of the
    test that training has not, which it counts."""
    known, tested = Counter(train), Counter(test)
    for name, found in (("training", known), ("test", tested)):
        if found.total() < 2:
            raise InputError(
                f"{name} has {found.total()} {what}; a probe needs 2 or more, and hundreds to say anything"
            )
    if len(known) == 1:
        raise InputError(f"all {known.total():,} {what} of training are {train[0]!r}; give examples of two or more")
    if unknown := Counter({label: count for label, count in tested.items() if label not in known}):
        counts = ", ".join(f"{label!r} {count} times" for label, count in unknown.most_common(20))
        more = f" and {len(unknown) - 20} others" if len(unknown) > 20 else ""
        raise InputError(
            f"the test has {what} that training lacks: {counts}{more}; training has "
            f"{', '.join(map(repr, sorted(known)[:20]))}: add such examples there, or leave them out of the test"
        )


def score_labels(
    predicted: Sequence[str], right: Sequence[str], *, resamples: int = 1000, seed: int = 0
) -> tuple[Figures, Intervals]:
    """`accuracy` and `macro_f1` of labels, and their 95 % intervals."""
    numbers = {label: number for number, label in enumerate(sorted({*predicted, *right}))}
    predictions = Predictions("classes", *([numbers[label] for label in side] for side in (predicted, right)))
    metrics = ("accuracy", "macro_f1")
    return score(predictions, metrics).figures, score_intervals(predictions, metrics, resamples=resamples, seed=seed)


def score_tags(predicted: Tags, right: Tags, *, resamples: int = 1000, seed: int = 0) -> tuple[Figures, Intervals]:
    """`accuracy` of the tags of sentences, and their 95 % intervals; first `f1`, `precision` and `recall` of entities,
    read as conlleval.pl does, where tags are those of entities. Sentences are drawn, not words."""
    predictions, metrics = Predictions("tags", predicted, right), ("accuracy",)
    names = {"accuracy": "accuracy"}
    if are_entities(right):
        metrics = ("entities",)
        names = {f"entities_{name}": name for name in ("f1", "precision", "recall", "accuracy")}
    figures = score(predictions, metrics).figures
    ends = score_intervals(predictions, metrics, resamples=resamples, seed=seed)
    return {name: figures[own] for own, name in names.items()}, {name: ends[own] for own, name in names.items()}


def are_entities(tags: Tags) -> bool:
    """Whether tags mark entities, as `B-PER` and `I-PER` do, and O what is none.

    >>> are_entities([["O", "I-PER"], ["O"]]), are_entities([["NOUN", "VERB"]])
    (True, False)
    """
    found = {tag for sentence in tags for tag in sentence}
    return found != {"O"} and all(tag == "O" or tag[1:2] == "-" for tag in found)
