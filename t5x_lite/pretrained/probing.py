"""Feature-based use: linear classifiers on the layers of a frozen model (Devlin et al. 2019, section 5.3)."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from t5x_lite.data.records.base import Records, field_of, text_in
from t5x_lite.errors import InputError
from t5x_lite.metrics.base import Figures, Intervals
from t5x_lite.metrics.entities import Tags
from t5x_lite.metrics.scores import score, score_intervals
from t5x_lite.objectives import Predictions
from t5x_lite.objectives.tagging import are_entities
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.batches import Text
from t5x_lite.pretrained.encoder import (
    NAMED_LAYERS,
    TABLE_7,
    Layers,
    Pooling,
    PretrainedEncoder,
    check_layers,
    check_pooling,
)


class Labeled(NamedTuple):
    """A text, or a pair, and its label as the data writes it."""

    text: Text
    label: str


class Tagged(NamedTuple):
    """A sentence's words and their tags."""

    words: list[str]
    tags: list[str]


@dataclass(frozen=True)
class Probed:
    """The result of a probe on one choice of layers."""

    layers: Layers
    num_features: int
    figures: Figures
    """On the test: `accuracy` and `macro_f1` of texts, `f1`, `precision`, `recall` of entities, `accuracy` of tags."""
    intervals: Intervals
    """The 95 % intervals of the same, by the bootstrap over examples."""
    converged: bool


@dataclass(frozen=True)
class Probes:
    """Probes on several choices of layers, with the same examples."""

    probed: tuple[Probed, ...]
    num_train: int
    num_test: int
    """Texts or sentences."""
    guess: float
    """The accuracy on the test of the most frequent label of training."""
    l2: float
    """See `fit_probe`."""
    remarks: tuple[str, ...]
    """What qualifies the figures: texts that were cut, layers that the model lacks, probes that did not converge."""


def probe_texts(
    model: Pretrained,
    train: Sequence[Labeled],
    test: Sequence[Labeled],
    *,
    layers: Sequence[Layers] = (),
    pooling: Pooling = "mean",
    l2: float = 1.0,
    seed: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Probes:
    """How well a linear classifier predicts the label of a text, or of a pair, from `PretrainedEncoder.encode`.

    Args:
      layers: choices of `encode`; empty means those of the paper's table 7 that the model has.
      pooling: mean or cls. Texts of more tokens than the model takes are cut.
      l2: see `fit_probe`.
      seed: of the bootstrap's draws.
      tell: is called with a line about the progress.
    """
    check_pooling(pooling)
    if pooling == "tokens":
        raise InputError("pooling='tokens' gives no one vector a text; choose mean or cls")
    model, choices, remarks = _begin(model, layers)
    labels, right = ([example.label for example in side] for side in (train, test))
    check_labels(labels, right)
    tell(f"encoding {len(train):,} texts of training and {len(test):,} of the test")
    features, num_cut = model.features_of_texts([example.text for example in (*train, *test)], choices, pooling)
    if num_cut:
        remarks.append(f"{num_cut:,} texts were cut to the tokens that the model takes")
    score, sizes = partial(score_labels, right=right, seed=seed), (len(train), len(test))
    return _probe(features, labels, right, score, sizes, l2, tell, remarks)


def probe_tags(
    model: Pretrained,
    train: Sequence[Tagged],
    test: Sequence[Tagged],
    *,
    layers: Sequence[Layers] = (),
    l2: float = 1.0,
    seed: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Probes:
    """How well it predicts the tag of a word from the vector of its first piece; see `probe_texts`."""
    model, choices, remarks = _begin(model, layers)
    labels, right = ([tag for sentence in side for tag in sentence.tags] for side in (train, test))
    check_labels(labels, right, what="tags")
    tell(f"encoding {len(train):,} sentences of training and {len(test):,} of the test")
    vectors, num_more = model.features_of_words([sentence.words for sentence in (*train, *test)], choices)
    if num_more:
        remarks.append(f"sentences of more tokens than the model takes were read in parts, {num_more:,} more")
    features = {choice: np.concatenate(found) for choice, found in vectors.items()}
    tags = [sentence.tags for sentence in test]
    ends = np.cumsum(list(map(len, tags)))

    def score(predicted: Sequence[str]) -> tuple[Figures, Intervals]:
        return score_tags([one.tolist() for one in np.split(np.array(predicted), ends[:-1])], tags, seed=seed)

    return _probe(features, labels, right, score, (len(train), len(test)), l2, tell, remarks)


def labeled_examples(
    examples: Records, *, texts: tuple[str, ...] = ("text",), label: str = "label", left_out: tuple[str, ...] = ()
) -> list[Labeled]:
    """The text, or the two of a pair, and the label of each record, without those whose labels are `left_out`.

    Raises `InputError` for fields that are missing, naming those present, and empty ones.
    """
    # A `LabeledTexts` has to know the labels before; here training gives them.
    if not 1 <= len(texts) <= 2:
        raise InputError(f"texts={texts} are {len(texts)} fields; name one, or the two of a pair")
    labeled = []
    for example in examples:
        value = str(field_of(example, label, "label")).strip()
        if value not in left_out:
            parts = tuple(text_in(example, name, "texts") for name in texts)
            labeled.append(Labeled(parts[0] if len(parts) == 1 else parts, value))
    return labeled


def tagged_examples(examples: Records) -> list[Tagged]:
    """The words and tags of each sentence of `ConllFiles`."""
    return [Tagged(field_of(one, "tokens", "tokens"), field_of(one, "tags", "tags")) for one in examples]


def split(examples: Sequence, share: float, seed: int) -> tuple[list, list]:
    """(training, test): a share of the examples, drawn at random, is the test; both keep their order.

    >>> split("abcdef", 0.5, seed=0)
    (['a', 'b', 'e'], ['c', 'd', 'f'])
    """
    if not 0.0 < share < 1.0:
        raise InputError(f"held_out={share} is not between 0 and 1; choose e.g. 0.2, or give a test of its own")
    drawn = set(np.random.default_rng(seed).permutation(len(examples))[: round(share * len(examples))].tolist())
    train, test = ([one for number, one in enumerate(examples) if (number in drawn) is side] for side in (False, True))
    return train, test


def _begin(model: Pretrained, layers: Sequence[Layers]) -> tuple[PretrainedEncoder, tuple[Layers, ...], list[str]]:
    """The model, the choices of layers, and a remark on those that it lacks."""
    if not isinstance(model, PretrainedEncoder):
        name = type(model.config).__name__
        raise InputError(f"a probe reads the layers of an encoder, and this is a {name}; load one")
    if layers:
        for choice in layers:
            check_layers(choice, model.num_layers)
        return model, tuple(dict.fromkeys(layers)), []
    missing = [choice for choice in TABLE_7 if choice and model.num_layers < NAMED_LAYERS[choice][0]]
    remark = f"{', '.join(map(str, missing))} are left out: the model has {model.num_layers} layers"
    return model, tuple(choice for choice in TABLE_7 if choice not in missing), [remark] if missing else []


def _probe(
    features: dict[Layers, Float[np.ndarray, "N F"]],
    labels: list[str],
    right: list[str],
    score: Callable[[Sequence[str]], tuple[Figures, Intervals]],
    sizes: tuple[int, int],
    l2: float,
    tell: Callable[[str], None],
    remarks: list[str],
) -> Probes:
    """A probe on each choice of layers; the first rows of the features are those of training, with these labels."""
    probed = []
    for layers, rows in features.items():
        tell(f"fitting a probe on {format_layers(layers)}, {rows.shape[1]:,} features")
        probe, converged = fit_probe(rows[: len(labels)], labels, l2=l2)
        figures, intervals = score(probe.predict(rows[len(labels) :]).tolist())
        if not converged:
            remarks.append(f"the probe on {format_layers(layers)} was stopped before its loss was at the minimum")
        probed.append(Probed(layers, rows.shape[1], figures, intervals, converged))
    ((most, _),) = Counter(labels).most_common(1)
    return Probes(tuple(probed), *sizes, right.count(most) / len(right), l2, tuple(remarks))


def format_layers(layers: Layers) -> str:
    """A choice of layers, to be read.

    >>> format_layers(0), format_layers(3), format_layers(-1), format_layers("sum_all")
    ('embeddings', 'layer 3', 'layer -1', 'sum all')
    """
    return "embeddings" if layers == 0 else f"layer {layers}" if isinstance(layers, int) else layers.replace("_", " ")


def fit_probe(
    features: Float[np.ndarray, "N F"], labels: Sequence[str], *, l2: float = 1.0, max_iterations: int = 1000
) -> tuple[Any, bool]:
    """(scikit-learn's logistic regression on features of mean 0 and variance 1 in training, whether it converged).

    The result is deterministic: the loss has one minimum, and the weights begin at 0.

    Args:
      l2: weight of half the sum of squared weights beside the summed loss of all rows; scikit-learn's C is 1 / l2.
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
    return probe, not any(issubclass(one.category, ConvergenceWarning) for one in caught)


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
    names = sorted({*predicted, *right})
    predictions = Predictions("classes", *([names.index(label) for label in side] for side in (predicted, right)))
    metrics = ("accuracy", "macro_f1")
    return score(predictions, metrics).figures, score_intervals(predictions, metrics, resamples=resamples, seed=seed)


def score_tags(predicted: Tags, right: Tags, *, resamples: int = 1000, seed: int = 0) -> tuple[Figures, Intervals]:
    """`accuracy` of the tags of sentences, and their 95 % intervals; first `f1`, `precision` and `recall` of entities,
    read as conlleval.pl does, where tags are those of entities. Sentences are drawn, not words."""
    predictions, metrics = Predictions("tags", predicted, right), ("entities" if are_entities(right) else "accuracy",)
    names = [f"entities_{name}" for name in ("f1", "precision", "recall", "accuracy")]
    figures = score(predictions, metrics).figures
    intervals = score_intervals(predictions, metrics, resamples=resamples, seed=seed)
    return tuple(
        {name.removeprefix("entities_"): some[name] for name in (*names, "accuracy") if name in some}
        for some in (figures, intervals)
    )
