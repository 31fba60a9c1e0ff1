"""Feature-based use: the layers of a model that stays as it is, each read by a linear classifier (Devlin et al. 2019,
section 5.3)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from t5x_lite.data.records.base import Records, field_of, text_in
from t5x_lite.data.tasks.classification import LabeledTexts
from t5x_lite.errors import InputError
from t5x_lite.evaluation.probe import check_labels, fit_probe, score_labels, score_tags
from t5x_lite.metrics.base import Figures, Intervals
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.batches import Text
from t5x_lite.pretrained.encoder import (
    TABLE_7,
    Layers,
    Pooling,
    PretrainedEncoder,
    check_layers,
    check_pooling,
    has_layers,
)

Tell = Callable[[str], None]
"""Called with a line about what is being done."""


class Labeled(NamedTuple):
    """A text, or a pair, and its label as it is written."""

    text: Text
    label: str


class Tagged(NamedTuple):
    """A sentence's words and their tags."""

    words: list[str]
    tags: list[str]


@dataclass(frozen=True)
class Probed:
    """What a probe on one choice of layers says."""

    layers: Layers
    num_features: int
    figures: Figures
    """On the test: `accuracy` and `macro_f1` of texts, `f1`, `precision`, `recall` of entities, `accuracy` of tags."""
    intervals: Intervals
    """The 95 % intervals of the same, by the bootstrap over examples."""
    converged: bool


@dataclass(frozen=True)
class Probes:
    """Probes on several choices of layers, all on the same examples."""

    probed: tuple[Probed, ...]
    num_train: int
    num_test: int
    """Texts or sentences."""
    guess: float
    """The accuracy of the label that is most frequent in training, on the test."""
    l2: float
    """See `fit_probe`."""
    remarks: tuple[str, ...]
    """What has to be known to read the figures: texts that were cut, layers that the model has not, probes that were
    stopped before they fitted."""


def probe_texts(
    model: Pretrained,
    train: Sequence[Labeled],
    test: Sequence[Labeled],
    *,
    layers: Sequence[Layers] = (),
    pooling: Pooling = "mean",
    l2: float = 1.0,
    seed: int = 0,
    tell: Tell = lambda line: None,
) -> Probes:
    """How well the class of a text, or of a pair, is read off the vectors of `PretrainedEncoder.encode`.

    Args:
      layers: choices of `encode`; empty means those of the paper's table 7 that the model has.
      pooling: mean or cls. Texts of more tokens than the model takes are cut.
      l2: see `fit_probe`.
      seed: of the bootstrap's draws.
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

    def score(predicted: Sequence[str]) -> tuple[Figures, Intervals]:
        return score_labels(predicted, right, seed=seed)

    probed = _fit(features, labels, score, l2, tell, remarks)
    return Probes(probed, len(train), len(test), _guess(labels, right), l2, tuple(remarks))


def probe_tags(
    model: Pretrained,
    train: Sequence[Tagged],
    test: Sequence[Tagged],
    *,
    layers: Sequence[Layers] = (),
    l2: float = 1.0,
    seed: int = 0,
    tell: Tell = lambda line: None,
) -> Probes:
    """How well the tag of a word is read off the vector of its first piece; see `probe_texts`."""
    model, choices, remarks = _begin(model, layers)
    labels, right = ([tag for sentence in side for tag in sentence.tags] for side in (train, test))
    check_labels(labels, right, what="tags")
    tell(f"encoding {len(train):,} sentences of training and {len(test):,} of the test")
    vectors, num_more = model.features_of_words([sentence.words for sentence in (*train, *test)], choices)
    if num_more:
        remarks.append(f"sentences of more tokens than the model takes were read in parts, {num_more:,} more")
    features = {choice: np.concatenate(found) for choice, found in vectors.items()}
    ends = np.cumsum([len(sentence.tags) for sentence in test])

    def score(predicted: Sequence[str]) -> tuple[Figures, Intervals]:
        by_sentence = [list(map(str, tags)) for tags in np.split(np.asarray(predicted), ends[:-1])]
        return score_tags(by_sentence, [sentence.tags for sentence in test], seed=seed)

    probed = _fit(features, labels, score, l2, tell, remarks)
    return Probes(probed, len(train), len(test), _guess(labels, right), l2, tuple(remarks))


def labeled_examples(
    examples: Records, *, texts: tuple[str, ...] = ("text",), label: str = "label", left_out: tuple[str, ...] = ()
) -> list[Labeled]:
    """The text, or the two of a pair, and the label of each record, but for labels that are left out.

    Raises `InputError` for fields that are missing, naming those present, and empty ones.
    """
    # A `LabeledTexts` has to know the labels before; here they are what training has.
    if not 1 <= len(texts) <= 2:
        raise InputError(f"texts={texts} are {len(texts)} fields; name one, or the two of a pair")
    found = []
    for example in examples:
        written = str(field_of(example, label, "label")).strip()
        if written not in left_out:
            parts = tuple(text_in(example, name, "texts") for name in texts)
            found.append(Labeled(parts[0] if len(parts) == 1 else parts, written))
    return found


def examples_of(source: LabeledTexts) -> list[Labeled]:
    """Those of a task's source, by the names of their classes."""
    if not source.labels:
        raise InputError("labels=() are numbers, and a probe reads classes; name the classes in labels")
    return [
        Labeled(one.texts[0] if len(one.texts) == 1 else one.texts, source.labels[int(one.label)])
        for one in source.read()
    ]


def tagged_examples(examples: Records) -> list[Tagged]:
    """The words and tags of each sentence of `ConllFiles`."""
    return [Tagged(field_of(one, "tokens", "tokens"), field_of(one, "tags", "tags")) for one in examples]


def split(examples: Sequence, share: float, seed: int) -> tuple[list, list]:
    """(training, test): a share of the examples, drawn at random, is the test; both in the order that they had.

    >>> split("abcdef", 0.5, seed=0)
    (['a', 'b', 'e'], ['c', 'd', 'f'])
    """
    if not 0.0 < share < 1.0:
        raise InputError(f"held_out={share} is not between 0 and 1; choose e.g. 0.2, or give a test of its own")
    drawn = set(np.random.default_rng(seed).permutation(len(examples))[: round(share * len(examples))].tolist())
    train, test = ([one for number, one in enumerate(examples) if (number in drawn) is side] for side in (False, True))
    return train, test


def _begin(model: Pretrained, layers: Sequence[Layers]) -> tuple[PretrainedEncoder, tuple[Layers, ...], list[str]]:
    """The model, known to encode, the choices of layers, and a remark on those that it has not."""
    if not isinstance(model, PretrainedEncoder):
        model.encode()  # which says what this model is and can
    num_layers = model.num_layers
    for choice in layers:
        check_layers(choice, num_layers)
    choices = tuple(layers) or tuple(choice for choice in TABLE_7 if has_layers(choice, num_layers))
    missing = [] if layers else [str(choice) for choice in TABLE_7 if choice not in choices]
    message = f"{', '.join(missing)} are left out: the model has {num_layers} layers"
    return model, tuple(dict.fromkeys(choices)), [message] if missing else []


def _fit(
    features: dict[Layers, Float[np.ndarray, "N F"]],
    labels: list[str],
    score: Callable[[Sequence[str]], tuple[Figures, Intervals]],
    l2: float,
    tell: Tell,
    remarks: list[str],
) -> tuple[Probed, ...]:
    """A probe on each choice of layers; the first rows are those of training, as many as there are labels. One that was
    stopped is added to the remarks."""
    probed = []
    for layers, rows in features.items():
        tell(f"fitting a probe on {format_layers(layers)}, {rows.shape[1]:,} features")
        probe = fit_probe(rows[: len(labels)], labels, l2=l2)
        figures, intervals = score(probe.predict(rows[len(labels) :]).tolist())
        if not probe.converged:
            remarks.append(f"the probe on {format_layers(layers)} was stopped before its loss was at the minimum")
        probed.append(Probed(layers, rows.shape[1], figures, intervals, probe.converged))
    return tuple(probed)


def format_layers(layers: Layers) -> str:
    """A choice of layers, to be read.

    >>> format_layers(0), format_layers(3), format_layers(-1), format_layers("sum_all")
    ('embeddings', 'layer 3', 'layer -1', 'sum all')
    """
    return "embeddings" if layers == 0 else f"layer {layers}" if isinstance(layers, int) else layers.replace("_", " ")


def _guess(labels: Iterable[str], right: Sequence[str]) -> float:
    ((most, _),) = Counter(labels).most_common(1)
    return sum(label == most for label in right) / len(right)
