"""The eight tasks of SuperGLUE (Wang et al. 2019), from TensorFlow Datasets.

Prefixes and words are those of Raffel et al. 2020, section 2.4 and appendix D, and of its authors' code where the paper
prints no example (BoolQ, ReCoRD) or keeps the markup that the code removes (MultiRC). TensorFlow Datasets has no parts
of speech for WiC, which the paper's example has. A head reads two texts: of MultiRC the paragraph, and the question
with the answer; of WiC the sentences, before the first of them the word; of COPA the premise with the question in
words, and a choice.
"""

import dataclasses
from functools import partial
from typing import Any

from t5x_lite.data import AnswerTemplate, Choices, ComposedRecords, CoreferenceTemplate, LabeledTexts, LabelTemplate
from t5x_lite.tasks.task import Task, template, tfds_task


def _classes(
    config: str,
    submission: str,
    labels: tuple[str, ...],
    fields: tuple[str, ...],
    texts: tuple[str, ...],
    metrics: tuple[str, ...] = ("exact_match",),
    *,
    name: str = "",
    submitted: tuple[str | int, ...] = (),
    **options: Any,
) -> Task:
    """Classes of texts: `fields` are those of the template, which takes `options`, and `texts` those of a head."""
    prompt = LabelTemplate(template(config, *fields), labels=labels, **options)
    head = partial(LabeledTexts, texts=texts, labels=labels)
    names = {"submission": submission, "submitted": submitted}
    return tfds_task(name or config, f"super_glue/{config}", prompt, head, *metrics, **names)


def _with_field(task: Task, field: str, template: str) -> Task:
    """The task with one more field, for its head."""
    composed = {name: ComposedRecords(getattr(task, name), field, template) for name in ("train", "dev", "test")}
    return dataclasses.replace(task, **composed)


_ANSWERS, _JSON = ("False", "True"), ("false", "true")
_INFERENCE, _REVERSED = ("premise", "hypothesis"), ("hypothesis", "premise")
_CHOICES = ("choice1", "choice2")

BOOLQ = _classes("boolq", "BoolQ.jsonl", _ANSWERS, ("passage", "question"), ("question", "passage"), submitted=_JSON)
CB = _classes(
    "cb", "CB.jsonl", ("entailment", "contradiction", "neutral"), _REVERSED, _INFERENCE, ("macro_f1", "exact_match")
)
COPA = tfds_task(
    "copa",
    "super_glue/copa",
    # Whether the second one is meant, in the paper's words.
    LabelTemplate(template("copa", *_CHOICES, "premise", "question"), labels=_CHOICES, words=_ANSWERS),
    partial(Choices, context="premise_and_question", choices=_CHOICES, labels=_CHOICES),
    "exact_match",
    submission="COPA.jsonl",
    submitted=(0, 1),
)
COPA = _with_field(COPA, "premise_and_question", "{premise} What was the {question}?")
MULTIRC = _classes(
    "multirc",
    "MultiRC.jsonl",
    _ANSWERS,
    ("question", "answer", "paragraph"),
    ("paragraph", "question_and_answer"),
    ("f1", "group_match"),
    submitted=(0, 1),
    group="{idx/paragraph} {idx/question}",
    replacements=(("<br>", " "), ("</?b>", "")),
)
MULTIRC = _with_field(MULTIRC, "question_and_answer", "{question} {answer}")
RECORD = tfds_task(
    "record",
    "super_glue/record",
    AnswerTemplate(
        template("record", "query", "entities", "passage"),
        each=True,
        # Summaries below an article follow a mark; they become sentences of it.
        replacements=(("([.?!\"'])\n@highlight\n", r"\1 "), ("\n@highlight\n", ". ")),
    ),
    None,
    "squad",
    submission="ReCoRD.jsonl",
)
RTE = _classes("rte", "RTE.jsonl", ("entailment", "not_entailment"), _REVERSED, _INFERENCE, name="super_glue_rte")
_WIC_FIELDS = ("sentence1", "sentence2", "word")
WIC = _classes("wic", "WiC.jsonl", _ANSWERS, _WIC_FIELDS, ("word_and_sentence1", "sentence2"), submitted=_JSON)
WIC = _with_field(WIC, "word_and_sentence1", "{word}: {sentence1}")
WSC = tfds_task(
    "wsc",
    "super_glue/wsc.fixed",
    CoreferenceTemplate("wsc: {text}"),
    None,
    "referent",
    submission="WSC.jsonl",
    submitted=("False", "True"),
)
"""Only the examples whose noun phrase is the right one are learnt."""

SUPER_GLUE = (BOOLQ, CB, COPA, MULTIRC, RECORD, RTE, WIC, WSC)
"""All eight, in the order of the benchmark's table."""
