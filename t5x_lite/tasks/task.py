"""A task as a value: its examples, how they are put into words, what a head predicts, and what it is scored by."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from t5x_lite.data import (
    Data,
    LabeledTexts,
    LabelTemplate,
    Mixture,
    Part,
    PromptTemplate,
    Proportional,
    Rates,
    Records,
    Source,
    TextToText,
)
from t5x_lite.data.records.tfds import with_datasets
from t5x_lite.errors import InputError
from t5x_lite.metrics.scores import Metrics, PartMetrics


@dataclass(frozen=True)
class Task:
    """What a model is fine-tuned on. A variant is `dataclasses.replace(task, ...)`, on one's own files too."""

    name: str
    """As figures call it."""
    train: Records
    dev: Records | None
    """What is evaluated on; None holds out a part of `train`."""
    prompt: PromptTemplate
    """Text to text: what is read, and what is to be written."""
    head: Callable[[Records], Source] | None
    """What a head trains on instead: the source over some records, such as `partial(LabeledTexts, texts=("text",))`;
    None where answers are texts, for which there is no head."""
    metrics: Metrics
    """What written answers are scored by."""
    test: Records | None = None
    """Whose labels a benchmark may hide."""
    submission: str = ""
    """The name of the file with predictions that its benchmark takes; empty where there is none."""
    submitted: tuple[str | int, ...] = ()
    """How that file names the classes, by number; empty: as the data does."""

    def text_data(self, **options: Any) -> Data:
        """What an experiment on text to text takes as `data`; `options` are those of `Data`, such as a tokenizer."""
        return Data(self.pairs(self.train), held_out_source=self._held_out(self.pairs), **options)

    def head_data(self, **options: Any) -> Data:
        """What an experiment with a head takes as `data`. Raises `InputError` for a task whose answers are texts."""
        if self.head is None:
            raise InputError("the task has no head: its answers are texts; use text_data with SequenceToSequence")
        return Data(self.head(self.train), held_out_source=self._held_out(self.head), **options)

    def pairs(self, examples: Records) -> TextToText:
        """Some of its examples in words."""
        return TextToText(examples, self.prompt)

    def part(self) -> Part:
        """The task as a part of a mixture."""
        return Part(self.name, self.pairs(self.train), self._held_out(self.pairs))

    def at(self, data_dir: str) -> Self:
        """The same task, its datasets of TensorFlow Datasets in another folder."""
        moved = {name: with_datasets(getattr(self, name), data_dir=data_dir) for name in ("train", "dev", "test")}
        return dataclasses.replace(self, **moved)

    def _held_out(self, source: Callable[[Records], Source]) -> Source | None:
        return None if self.dev is None else source(self.dev)


def mixture(tasks: Sequence[Task], rates: Rates = Proportional()) -> Mixture:  # noqa: B008 (frozen)
    """Tasks to train on together, as text to text."""
    return Mixture(tuple(task.part() for task in tasks), rates)


def metrics_of_parts(tasks: Sequence[Task]) -> tuple[PartMetrics, ...]:
    """What an experiment on a mixture of tasks takes as `evaluation.part_metrics`."""
    return tuple(PartMetrics(task.name, task.metrics) for task in tasks)


def text_classes(
    name: str,
    train: Records,
    dev: Records | None = None,
    *,
    labels: tuple[str, ...],
    texts: tuple[str, ...] = ("text",),
    label: str = "label",
    words: tuple[str, ...] = (),
    left_out: tuple[str, ...] = (),
    source: str = "",
) -> Task:
    """A task of one's own: the classes of texts, or of pairs of them.

    Args:
      name: of the task.
      train: its examples.
      dev: examples to evaluate on; None holds out a part of the others.
      labels: the classes, as they are written in the data.
      texts: the field of the text, or those of a pair.
      label: the field of the label.
      words: what is written for each class; empty: the label itself.
      left_out: labels whose examples are left out.
      source: the template of what is read; empty: the name and the fields as the T5 paper has them.

    >>> from t5x_lite.data import Tfds
    >>> task = text_classes("snli", train=Tfds("snli"), labels=("yes", "no"), texts=("premise", "hypothesis"))
    >>> task.prompt.source
    'snli premise: {premise} hypothesis: {hypothesis}'
    """
    return Task(
        name,
        train,
        dev,
        LabelTemplate(source or template(name, *texts), label, labels, words, left_out),
        partial(LabeledTexts, texts=texts, label=label, labels=labels, left_out=left_out),
        ("exact_match", "f1") if len(labels) == 2 else ("exact_match", "macro_f1"),
    )


def template(name: str, *fields: str) -> str:
    """The name of a task and then each field behind its own name, as Raffel et al. 2020 write it (appendix D).

    >>> template("mrpc", "sentence1", "sentence2")
    'mrpc sentence1: {sentence1} sentence2: {sentence2}'
    """
    return " ".join([name, *(f"{field}: {{{field}}}" for field in fields)])
