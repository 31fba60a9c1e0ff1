"""How good the answers to tasks are that a model writes: classes, numbers, spans, tags, noun phrases as text.

Every metric is a function of `Written`. What cannot be read as an answer is wrong.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from t5x_lite.errors import InputError
from t5x_lite.evaluation.answers import NO_CLASS, Answers, class_of, entity_tags, names_referent, number_of, tags_of
from t5x_lite.evaluation.label_metrics import LabelMetric, label_scores
from t5x_lite.evaluation.scores import score_answers

Figures = dict[str, float]


@dataclass(frozen=True)
class Written:
    """What was written to some inputs, and what is right."""

    written: Sequence[str]
    right: Sequence[tuple[str, ...]]
    """For each input all texts that are right."""
    words: tuple[str, ...] = ()
    """The words of the classes, that of class 0 first; empty where there are none."""
    groups: Sequence[str] = ()
    """For each input the name of its group; empty where there are none."""


def classes(answers: Written, metric: LabelMetric) -> Figures:
    """F1 of class 1, the mean of every class's F1, or Matthews' correlation, as GLUE and SuperGLUE have them.

    What is no class's word counts as the other class in the F1 of two (it is wrong either way), else as a class of its
    own, whose F1 is not in the mean.
    """
    if not answers.words:
        raise InputError(f"metric {metric!r} needs the words of the classes by number; give TextToText with a task's")
    right = [class_of(texts[0], answers.words) for texts in answers.right]
    said = [class_of(text, answers.words) for text in answers.written]
    if metric == "f1":
        if len(answers.words) != 2:
            raise InputError(f"metric 'f1' is that of two classes, the task has {len(answers.words)}; take macro_f1")
        said = [1 - meant if number == NO_CLASS else number for number, meant in zip(said, right, strict=True)]
    return label_scores(said, right, (metric,), classes=len(answers.words))


def numbers(answers: Written, metric: LabelMetric) -> Figures:
    """Pearson's or Spearman's correlation of the numbers that were written with those that are right."""
    right = [number_of(texts[0]) for texts in answers.right]
    return label_scores([number_of(text) for text in answers.written], right, (metric,))


def spans(answers: Written) -> Figures:
    """SQuAD's exact match and F1, the best over the right answers of each question, in per cent.

    >>> spans(Written(["the Nile", "red"], [("Nile", "River Nile"), ("blue",)]))
    {'squad_exact_match': 50.0, 'squad_f1': 50.0}
    """
    return score_answers(Answers(list(answers.written), list(answers.right), _names(answers)), ("squad",))


def _names(answers: Written) -> list[str]:
    return list(map(str, range(len(answers.written))))


def tags(answers: Written) -> Figures:
    """The share of words with the right tag.

    >>> tags(Written(["DET NOUN"], [("DET VERB ADV",)]))
    {'tag_accuracy': 0.3333333333333333}
    """
    return {"tag_accuracy": score_answers(tag_answers(answers), ("accuracy",))["accuracy"]}


def entities(answers: Written, metric: Literal["entities", "strict_entities"]) -> Figures:
    """Precision, recall and F1 of entities, and the share of words with the right tag (see `entity_scores`)."""
    return score_answers(tag_answers(answers, of_entities=True), (metric,))


def tag_answers(answers: Written, *, of_entities: bool = False) -> Answers:
    """The tags that were written, one for each word, and those that are right; of entities, what is no tag of one is
    read as none."""
    right = [texts[0].split() for texts in answers.right]
    said = [tags_of(text, len(meant)) for text, meant in zip(answers.written, right, strict=True)]
    return Answers([entity_tags(tags) for tags in said] if of_entities else said, right, _names(answers))


def group_match(answers: Written) -> Figures:
    """The share of groups whose answers are all right, such as MultiRC's questions."""
    if not any(answers.groups):
        raise InputError("metric 'group_match' needs groups of inputs; give TextToText whose prompt has a group")
    found: dict[str, bool] = defaultdict(lambda: True)
    for text, right, group in zip(answers.written, answers.right, answers.groups, strict=True):
        found[group] &= text.strip() in right
    return {"group_match": sum(found.values()) / len(found)}


def referent(answers: Written) -> Figures:
    """The share of pronouns of which it is rightly said, or not, that they stand for a candidate: see
    `CoreferenceTemplate`.

    >>> referent(Written(["the cat", "it"], [("cat", "True"), ("dog", "False")]))
    {'referent': 1.0}
    """
    if not all(len(texts) == 2 and texts[1] in ("True", "False") for texts in answers.right):
        raise InputError(
            "metric 'referent' needs candidates and their labels; give TextToText with CoreferenceTemplate"
        )
    same = [
        names_referent(text, candidate) == (label == "True")
        for text, (candidate, label) in zip(answers.written, answers.right, strict=True)
    ]
    return {"referent": sum(same) / len(same)}
