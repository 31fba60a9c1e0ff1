"""How close written texts come to reference texts, as the field's own libraries compute it.

Metrics of texts are functions of (predictions, references), two sequences of texts of equal length; those of answers
to tasks are in `answer_metrics`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
from jaxtyping import Float

from t5x_lite.errors import InputError
from t5x_lite.evaluation import answer_metrics
from t5x_lite.evaluation.answer_metrics import Written
from t5x_lite.evaluation.metric_names import Metric, TextMetric

Texts = Sequence[str]
IN_PER_CENT = ("bleu", "chrf", "squad_exact_match", "squad_f1")
"""Figures from 0 to 100."""


@dataclass(frozen=True)
class Scores:
    """Figures by name, and the signatures of those that mean nothing without one."""

    figures: dict[str, float]
    """BLEU, chrF and SQuAD's from 0 to 100, as papers print them; correlations from -1 to 1; all others as shares of
    1."""
    signatures: dict[str, str] = field(default_factory=dict)
    """sacrebleu's signature by the figure's name: tokenization, smoothing, version."""
    written: dict[str, float] = field(default_factory=dict)
    """Those of the figures that are of texts that were written, where there are others too."""
    texts: tuple[str, ...] = ()
    """What was written, in the order of the questions."""


def score(
    predictions: Texts,
    references: Sequence[str | tuple[str, ...]],
    metrics: Sequence[TextMetric | Metric],
    *,
    words: tuple[str, ...] = (),
    groups: Texts = (),
) -> Scores:
    """All of `metrics` over the same texts.

    Args:
      predictions: what was written.
      references: what is right: for each a text, or several, the first of which counts where one is compared with.
      metrics: by name, or one's own.
      words: those of a task's classes, the first of which is class 0; for `f1`, `macro_f1` and `matthews`.
      groups: the name of each text's group; for `group_match`.

    Raises `InputError` for no texts, unequal numbers of them, or a metric that is not known or lacks what it needs.
    """
    if len(predictions) != len(references) or not references:
        raise InputError(
            f"{len(predictions)} predictions do not go with {len(references)} references; give one for each, and one "
            "or more"
        )
    right = [(texts,) if isinstance(texts, str) else texts for texts in references]
    found = [_score(metric, Written(predictions, right, words, groups)) for metric in metrics]
    return Scores(
        {name: value for one in found for name, value in one.figures.items()},
        {name: signature for one in found for name, signature in one.signatures.items()},
    )


def bleu(predictions: Texts, references: Texts) -> Scores:
    """Corpus BLEU (Papineni et al. 2002) by sacrebleu, cut into tokens as mteval-v13a does (Post 2018)."""
    return _of_corpus("bleu", predictions, references)


def chrf(predictions: Texts, references: Texts) -> Scores:
    """chrF2 (Popovic 2015) by sacrebleu with its defaults: the F-score of character 6-grams, recall counted twice."""
    return _of_corpus("chrf", predictions, references)


def corpus_metric(metric: TextMetric) -> Any:
    """sacrebleu's scorer for a metric over a corpus: `bleu` or `chrf`."""
    from sacrebleu.metrics import BLEU, CHRF

    return {"bleu": BLEU, "chrf": CHRF}[metric]()


def _of_corpus(metric: TextMetric, predictions: Texts, references: Texts) -> Scores:
    scorer = corpus_metric(metric)
    figure = scorer.corpus_score(list(predictions), [list(references)]).score
    return Scores({metric: figure}, {metric: str(scorer.get_signature())})


def rouge(predictions: Texts, references: Texts) -> Scores:
    """ROUGE-1, -2 and -L (Lin 2004) by rouge-score without stemming: the mean over texts of their F1.

    >>> rouge(["the cat sat"], ["the cat sat down there today"]).figures["rouge1"]
    0.6666666666666666
    """
    return Scores({kind: float(each.mean()) for kind, each in rouge_of_each(predictions, references).items()})


def rouge_of_each(predictions: Texts, references: Texts) -> dict[str, Float[np.ndarray, "N"]]:
    """The F1 of every text, by kind."""
    from rouge_score.rouge_scorer import RougeScorer

    kinds = ("rouge1", "rouge2", "rougeL")
    scorer = RougeScorer(list(kinds))
    each = [scorer.score(reference, said) for said, reference in zip(predictions, references, strict=True)]
    return {kind: np.array([one[kind].fmeasure for one in each]) for kind in kinds}


def exact_match(predictions: Texts, references: Sequence[str | tuple[str, ...]]) -> Scores:
    """The share of texts that are the reference itself, or one of them, but for white space around them: of classes
    that are answered by words, the accuracy.

    >>> exact_match(["a cat", "a dog "], ["a cat", "a dog"]).figures, exact_match(["A cat"], ["a cat"]).figures
    ({'exact_match': 1.0}, {'exact_match': 0.0})
    """
    right = [(texts,) if isinstance(texts, str) else texts for texts in references]
    same = [said.strip() in map(str.strip, texts) for said, texts in zip(predictions, right, strict=True)]
    return Scores({"exact_match": sum(same) / len(same)})


def _score(metric: TextMetric | Metric, answers: Written) -> Scores:
    if isinstance(metric, Metric):
        return Scores({metric.name: metric.compute(answers.written, answers.right)})
    written, references = answers.written, [texts[0] for texts in answers.right]
    match metric:
        case "bleu":
            return bleu(written, references)
        case "chrf":
            return chrf(written, references)
        case "rouge":
            return rouge(written, references)
        case "exact_match":
            return exact_match(written, answers.right)
        case "f1" | "macro_f1" | "matthews":
            return Scores(answer_metrics.classes(answers, metric))
        case "pearson" | "spearman":
            return Scores(answer_metrics.numbers(answers, metric))
        case "squad":
            return Scores(answer_metrics.spans(answers))
        case "tags":
            return Scores(answer_metrics.tags(answers))
        case "entities" | "strict_entities":
            return Scores(answer_metrics.entities(answers, metric))
        case "group_match":
            return Scores(answer_metrics.group_match(answers))
        case "referent":
            return Scores(answer_metrics.referent(answers))
    raise InputError(f"metric {metric!r} is not known; choose {', '.join(get_args(TextMetric))}")
