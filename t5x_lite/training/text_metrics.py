"""How close written texts come to reference texts, as the field's own libraries compute it.

Every metric is a function of (predictions, references), two sequences of texts of equal length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from t5x_lite.errors import InputError

TextMetric = Literal["bleu", "chrf", "rouge", "exact_match"]
Texts = Sequence[str]


@dataclass(frozen=True)
class Scores:
    """Figures by name, and the signatures of those that mean nothing without one."""

    figures: dict[str, float]
    """BLEU and chrF from 0 to 100, as papers print them; ROUGE and exact match as shares of 1."""
    signatures: dict[str, str] = field(default_factory=dict)
    """sacrebleu's signature by the figure's name: tokenization, smoothing, version."""


def score(predictions: Texts, references: Texts, metrics: Sequence[TextMetric]) -> Scores:
    """All of `metrics` over the same texts.

    Raises `InputError` for no texts, unequal numbers of them, or a metric that is not known.
    """
    if len(predictions) != len(references) or not references:
        raise InputError(
            f"{len(predictions)} predictions do not go with {len(references)} references; give one for each, and one "
            "or more"
        )
    found = [_function(metric)(predictions, references) for metric in metrics]
    return Scores(
        {name: value for one in found for name, value in one.figures.items()},
        {name: signature for one in found for name, signature in one.signatures.items()},
    )


def bleu(predictions: Texts, references: Texts) -> Scores:
    """Corpus BLEU (Papineni et al. 2002) by sacrebleu, cut into tokens as mteval-v13a does (Post 2018)."""
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    figure = metric.corpus_score(list(predictions), [list(references)]).score
    return Scores({"bleu": figure}, {"bleu": str(metric.get_signature())})


def chrf(predictions: Texts, references: Texts) -> Scores:
    """chrF2 (Popovic 2015) by sacrebleu with its defaults: the F-score of character 6-grams, recall counted twice."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    figure = metric.corpus_score(list(predictions), [list(references)]).score
    return Scores({"chrf": figure}, {"chrf": str(metric.get_signature())})


def rouge(predictions: Texts, references: Texts) -> Scores:
    """ROUGE-1, -2 and -L (Lin 2004) by rouge-score without stemming: the mean over texts of their F1.

    >>> rouge(["the cat sat"], ["the cat sat down there today"]).figures["rouge1"]
    0.6666666666666666
    """
    from rouge_score.rouge_scorer import RougeScorer

    kinds = ("rouge1", "rouge2", "rougeL")
    scorer = RougeScorer(list(kinds))
    each = [scorer.score(reference, said) for said, reference in zip(predictions, references, strict=True)]
    return Scores({kind: sum(one[kind].fmeasure for one in each) / len(each) for kind in kinds})


def exact_match(predictions: Texts, references: Texts) -> Scores:
    """The share of texts that are the reference itself, but for white space around them.

    >>> exact_match(["a cat", "a dog "], ["a cat", "a dog"]).figures, exact_match(["A cat"], ["a cat"]).figures
    ({'exact_match': 1.0}, {'exact_match': 0.0})
    """
    same = [said.strip() == reference.strip() for said, reference in zip(predictions, references, strict=True)]
    return Scores({"exact_match": sum(same) / len(same)})


def _function(metric: TextMetric) -> Callable[[Texts, Texts], Scores]:
    match metric:
        case "bleu":
            return bleu
        case "chrf":
            return chrf
        case "rouge":
            return rouge
        case "exact_match":
            return exact_match
    raise InputError(f"metric {metric!r} is not known; choose {', '.join(get_args(TextMetric))}")
