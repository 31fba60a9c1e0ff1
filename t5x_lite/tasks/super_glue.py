"""The eight tasks of SuperGLUE (Wang et al. 2019), from TensorFlow Datasets.

Prefixes and words are those of Raffel et al. 2020, section 2.4 and appendix D, and of its authors' code where the paper
prints no example (BoolQ, ReCoRD) or keeps the markup that the code removes (MultiRC). TensorFlow Datasets has no parts
of speech for WiC, which the paper's example has. A head reads two texts: of MultiRC the paragraph, and the question
with the answer; of WiC the sentences, before the first of them the word; of COPA the premise with the question in
words, and a choice.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

from t5x_lite.data import (
    AnswerTemplate,
    Choices,
    ComposedRecords,
    CoreferenceTemplate,
    LabeledTexts,
    LabelTemplate,
    PromptTemplate,
    Records,
    Source,
    Tfds,
)
from t5x_lite.tasks.task import Task, template


def _task(
    config: str,
    submission: str,
    prompt: PromptTemplate,
    head: Callable[[Records], Source] | None,
    *metrics: str,
    name: str = "",
    submitted: tuple[str | int, ...] = (),
) -> Task:
    train, dev, test = (Tfds(f"super_glue/{config}", split) for split in ("train", "validation", "test"))
    return Task(name or config, train, dev, prompt, head, metrics, test, submission, submitted)


def _with_field(task: Task, field: str, template: str) -> Task:
    """With one more field, for its head."""
    composed = {name: ComposedRecords(getattr(task, name), field, template) for name in ("train", "dev", "test")}
    return dataclasses.replace(task, **composed)


_ANSWERS = ("False", "True")
_INFERENCE = ("premise", "hypothesis")
_BELIEFS = ("entailment", "contradiction", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")

BOOLQ = _task(
    "boolq",
    "BoolQ.jsonl",
    LabelTemplate(template("boolq", "passage", "question"), labels=_ANSWERS),
    partial(LabeledTexts, texts=("question", "passage"), labels=_ANSWERS),
    "exact_match",
    submitted=("false", "true"),
)
CB = _task(
    "cb",
    "CB.jsonl",
    LabelTemplate(template("cb", "hypothesis", "premise"), labels=_BELIEFS),
    partial(LabeledTexts, texts=_INFERENCE, labels=_BELIEFS),
    "macro_f1",
    "exact_match",
)
COPA = _task(
    "copa",
    "COPA.jsonl",
    # Whether the second one is meant, in the paper's words.
    LabelTemplate(
        template("copa", "choice1", "choice2", "premise", "question"), labels=("choice1", "choice2"), words=_ANSWERS
    ),
    partial(
        Choices,
        context="premise_and_question",
        choices=("choice1", "choice2"),
        labels=("choice1", "choice2"),
    ),
    "exact_match",
    submitted=(0, 1),
)
COPA = _with_field(COPA, "premise_and_question", "{premise} What was the {question}?")
MULTIRC = _task(
    "multirc",
    "MultiRC.jsonl",
    LabelTemplate(
        template("multirc", "question", "answer", "paragraph"),
        labels=_ANSWERS,
        group="{idx/paragraph} {idx/question}",
        replacements=(("<br>", " "), ("</?b>", "")),
    ),
    partial(LabeledTexts, texts=("paragraph", "question_and_answer"), labels=_ANSWERS),
    "f1",
    "group_match",
    submitted=(0, 1),
)
MULTIRC = _with_field(MULTIRC, "question_and_answer", "{question} {answer}")
RECORD = _task(
    "record",
    "ReCoRD.jsonl",
    AnswerTemplate(
        template("record", "query", "entities", "passage"),
        each=True,
        # Summaries below an article stand behind a mark; they become sentences of it.
        replacements=(("([.?!\"'])\n@highlight\n", r"\1 "), ("\n@highlight\n", ". ")),
    ),
    None,
    "squad",
)
RTE = _task(
    "rte",
    "RTE.jsonl",
    LabelTemplate(template("rte", "hypothesis", "premise"), labels=_ENTAILMENT),
    partial(LabeledTexts, texts=_INFERENCE, labels=_ENTAILMENT),
    "exact_match",
    name="super_glue_rte",
)
WIC = _task(
    "wic",
    "WiC.jsonl",
    LabelTemplate(template("wic", "sentence1", "sentence2", "word"), labels=_ANSWERS),
    partial(LabeledTexts, texts=("word_and_sentence1", "sentence2"), labels=_ANSWERS),
    "exact_match",
    submitted=("false", "true"),
)
WIC = _with_field(WIC, "word_and_sentence1", "{word}: {sentence1}")
WSC = _task(
    "wsc.fixed",
    "WSC.jsonl",
    CoreferenceTemplate("wsc: {text}"),
    None,
    "referent",
    name="wsc",
    submitted=("False", "True"),
)
"""Learnt are only the examples whose noun phrase is the right one."""

SUPER_GLUE = (BOOLQ, CB, COPA, MULTIRC, RECORD, RTE, WIC, WSC)
"""All eight, in the order of the benchmark's table."""
