"""Texts that a model wrote to the examples of a task, read back as answers to them."""

from collections.abc import Sequence

from t5x_lite.data import (
    AnswerTemplate,
    CoreferenceTemplate,
    Example,
    LabelTemplate,
    NumberTemplate,
    PromptTemplate,
    TagTemplate,
)
from t5x_lite.data.records.tables import field_of, name_of, text_in
from t5x_lite.tasks.answers import Answers
from t5x_lite.tasks.written_answers import NO_CLASS, class_of, names_referent, number_of, tags_of


def read_texts(wording: PromptTemplate, examples: Sequence[Example], texts: Sequence[str], *, labeled: bool) -> Answers:
    """The class, number, tags or text that each text is; what is no class's word is `NO_CLASS`.

    Args:
      wording: that of the task.
      examples: what was asked about.
      texts: what was written, in the same order.
      labeled: whether the examples say what is right; else nothing is.
    """
    predictions = [_read(wording, *pair) for pair in zip(examples, texts, strict=True)]
    references = [
        _read(wording, one, wording.right(one)[0]) if labeled and not isinstance(wording, CoreferenceTemplate) else None
        for one in examples
    ]
    names = [name_of(one) for one in examples]
    return Answers(predictions, references, [number if name is None else name for number, name in enumerate(names)])


def _read(wording: PromptTemplate, example: Example, text: str) -> int | float | list[str] | str:
    match wording:
        case LabelTemplate():
            return class_of(text, wording.answers)
        case NumberTemplate():
            return number_of(text)
        case CoreferenceTemplate():
            return int(names_referent(text, text_in(example, wording.candidate, "candidate")))
        case TagTemplate():
            return tags_of(text, len(field_of(example, wording.tokens, "tokens")))
        case AnswerTemplate() if wording.no_answer and text.strip() == wording.no_answer:
            return ""
    return text.strip()


def count_unread(answers: Answers) -> int:
    """How many texts are no class's word."""
    return sum(said == NO_CLASS for said in answers.predictions if isinstance(said, int))
