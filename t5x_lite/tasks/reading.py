"""Questions on texts: SQuAD (Rajpurkar et al. 2016, 2018), RACE (Lai et al. 2017) and SWAG (Zellers et al. 2018).

SQuAD 1.1 is written as in Raffel et al. 2020, appendix D.15, without the blanks that its code puts around punctuation.
The words for questions without an answer, for RACE and for SWAG are not in the paper.
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
from t5x_lite.tasks.task import Task, template, tfds_task

NO_ANSWER = "unanswerable"
"""The target where a text does not answer a question."""

_QUESTION = "question: {question} context: {context}"


def _squad(name: str, config: str, no_answer: str = "") -> Task:
    prompt = AnswerTemplate(_QUESTION, "answers/text", no_answer=no_answer)
    head = partial(Questions, answers="answers/text", starts="answers/answer_start")
    return tfds_task(name, f"squad/{config}", prompt, head, "squad", splits=("train", "validation"))


SQUAD_1_1 = _squad("squad", "v1.1")
SQUAD_2_0 = _squad("squad2", "v2.0", NO_ANSWER)


def squad_files(
    name: str, train: tuple[str, ...], dev: tuple[str, ...] = (), *, may_be_unanswerable: bool = False
) -> Task:
    """SQuAD's task over JSON files in its format; without `dev` a part of `train` is held out."""
    prompt = AnswerTemplate(_QUESTION, no_answer=NO_ANSWER if may_be_unanswerable else "")
    return Task(name, SquadFiles(train), SquadFiles(dev) if dev else None, prompt, Questions, ("squad",))


def _race(name: str, *levels: str) -> Task:
    def examples(split: str) -> Records:
        articles = tuple(Tfds(f"race/{level}", split) for level in levels)
        return UnrolledRecords(JoinedRecords(articles), ("questions", "answers", "options"))

    letters, words = tuple("ABCD"), tuple(f"choice{number}" for number in range(1, 5))
    choices = " ".join(f"{word}: {{options/{number}}}" for number, word in enumerate(words))
    prompt = LabelTemplate(f"race question: {{questions}} {choices} article: {{article}}", "answers", letters, words)
    head = partial(
        Choices, context="article", choices=("options",), question="questions", label="answers", labels=letters
    )
    return Task(name, examples("train"), examples("dev"), prompt, head, ("exact_match",), examples("test"))


# TensorFlow Datasets writes lists of lists, as the options are, with TensorFlow alone; it reads them without.
RACE = _race("race", "high", "middle")
RACE_HIGH = _race("race_high", "high")
RACE_MIDDLE = _race("race_middle", "middle")


def swag(train: str, dev: str = "", test: str = "") -> Task:
    """SWAG over its authors' train.csv, val.csv and test.csv, since TensorFlow Datasets lacks it (4.9.10); without
    `dev` a part of `train` is held out."""
    endings = tuple(f"ending{number}" for number in range(4))
    prompt = LabelTemplate(template("swag", "startphrase", *endings), labels=tuple("0123"), words=endings)
    head = partial(Choices, context="sent1", choices=endings, question="sent2")
    train, dev, test = (TableFiles((path,)) if path else None for path in (train, dev, test))
    return Task("swag", train, dev, prompt, head, ("exact_match",), test)
