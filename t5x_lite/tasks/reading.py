"""Questions on texts: SQuAD (Rajpurkar et al. 2016, 2018), RACE (Lai et al. 2017) and SWAG (Zellers et al. 2018).

SQuAD 1.1 is written as in Raffel et al. 2020, appendix D.15, without the blanks that its code puts around punctuation.
The paper has no words for questions without an answer, for RACE and for SWAG: those here are ours, in its spirit.
"""

from functools import partial

from t5x_lite.data import (
    AnswerTemplate,
    Choices,
    JoinedRecords,
    LabelTemplate,
    Questions,
    Records,
    SquadFiles,
    TableFiles,
    Tfds,
    UnrolledRecords,
)
from t5x_lite.tasks.task import Task, template

NO_ANSWER = "unanswerable"
"""What is written where a text does not answer a question."""

_QUESTION = "question: {question} context: {context}"


def _squad(name: str, config: str, *, may_be_unanswerable: bool) -> Task:
    answers, no_answer = "answers/text", NO_ANSWER if may_be_unanswerable else ""
    return Task(
        name,
        Tfds(f"squad/{config}"),
        Tfds(f"squad/{config}", "validation"),
        AnswerTemplate(_QUESTION, answers, no_answer=no_answer),
        partial(Questions, answers=answers, starts="answers/answer_start"),
        ("squad",),
    )


SQUAD_1_1 = _squad("squad", "v1.1", may_be_unanswerable=False)
SQUAD_2_0 = _squad("squad2", "v2.0", may_be_unanswerable=True)


def squad_files(
    name: str, train: tuple[str, ...], dev: tuple[str, ...] = (), *, may_be_unanswerable: bool = False
) -> Task:
    """SQuAD's task over JSON files in its format; without `dev` a part of the others is held out."""
    return Task(
        name,
        SquadFiles(train),
        SquadFiles(dev) if dev else None,
        AnswerTemplate(_QUESTION, no_answer=NO_ANSWER if may_be_unanswerable else ""),
        Questions,
        ("squad",),
    )


_FOUR = ("choice1", "choice2", "choice3", "choice4")


def _race(name: str, *levels: str) -> Task:
    def examples(split: str) -> Records:
        articles = tuple(Tfds(f"race/{level}", split) for level in levels)
        return UnrolledRecords(JoinedRecords(articles), ("questions", "answers", "options"))

    options = tuple(f"options/{number}" for number in range(4))
    choices = " ".join(f"{word}: {{{option}}}" for word, option in zip(_FOUR, options, strict=True))
    return Task(
        name,
        examples("train"),
        examples("dev"),
        LabelTemplate(
            f"race question: {{questions}} {choices} article: {{article}}", "answers", ("A", "B", "C", "D"), _FOUR
        ),
        partial(
            Choices,
            context="article",
            choices=("options",),
            question="questions",
            label="answers",
            labels=("A", "B", "C", "D"),
        ),
        ("exact_match",),
        examples("test"),
    )


# TensorFlow Datasets writes lists of lists, as the options are, with TensorFlow alone; it reads them without.
RACE = _race("race", "high", "middle")
RACE_HIGH = _race("race_high", "high")
RACE_MIDDLE = _race("race_middle", "middle")


def swag(train: str, dev: str = "", test: str = "") -> Task:
    """SWAG over its authors' train.csv, val.csv and test.csv, for TensorFlow Datasets has it not (4.9.10); without
    `dev` a part of the others is held out."""
    endings = tuple(f"ending{number}" for number in range(4))
    labels = tuple("0123")
    train_, dev_, test_ = (TableFiles((path,)) if path else None for path in (train, dev, test))
    return Task(
        "swag",
        train_,
        dev_,
        LabelTemplate(template("swag", "startphrase", *endings), labels=labels, words=endings),
        partial(Choices, context="sent1", choices=endings, question="sent2"),
        ("exact_match",),
        test_,
    )
