"""A task as a value: its examples, their prompts, the source for a head, and the metrics."""

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
    Tfds,
)
from t5x_lite.data.records.tfds import with_datasets
from t5x_lite.errors import InputError
from t5x_lite.metrics.scores import Metrics, PartMetrics


@dataclass(frozen=True)
class Task:
    """What a model is fine-tuned on. A variant is `dataclasses.replace(task, ...)`, on one's own files too."""

    name: str
    train: Records
    dev: Records | None
    """For evaluation; None holds out a part of `train`."""
    prompt: PromptTemplate
    """Input and target in words, for text to text."""
    head: Callable[[Records], Source] | None
    """The source for a head over some records, such as `partial(LabeledTexts, texts=("text",))`; None where answers are
    texts, for which there is no head."""
    metrics: Metrics
    """For generated answers."""
    test: Records | None = None
    """Its labels may be hidden by the benchmark."""
    submission: str = ""
    """The name of the benchmark's file of predictions; empty where there is none."""
    submitted: tuple[str | int, ...] = ()
    """The names of the classes in that file, by number; empty: as in the data."""

    def text_data(self, **options: Any) -> Data:
        """The `data` of an experiment on text to text; `options` are those of `Data`, such as a tokenizer."""
        return Data(self.pairs(self.train), held_out_source=self._held_out(self.pairs), **options)

    def head_data(self, **options: Any) -> Data:
        """The `data` of an experiment with a head; `InputError` for a task whose answers are texts."""
        if self.head is None:
            raise InputError("the task has no head: its answers are texts; use text_data with SequenceToSequence")
        return Data(self.head(self.train), held_out_source=self._held_out(self.head), **options)

    def pairs(self, examples: Records) -> TextToText:
        return TextToText(examples, self.prompt)

    def part(self) -> Part:
        """The task as a part of a mixture, in words."""
        return Part(self.name, self.pairs(self.train), self._held_out(self.pairs))

    def at(self, data_dir: str) -> Self:
        """The same task with its TFDS datasets in another folder."""
        moved = {name: with_datasets(getattr(self, name), data_dir=data_dir) for name in ("train", "dev", "test")}
        return dataclasses.replace(self, **moved)

    def _held_out(self, source: Callable[[Records], Source]) -> Source | None:
        return None if self.dev is None else source(self.dev)


def mixture(tasks: Sequence[Task], rates: Rates = Proportional()) -> Mixture:  # noqa: B008 (frozen)
    """Tasks to train on together, as text to text."""
    return Mixture(tuple(task.part() for task in tasks), rates)


def metrics_of_parts(tasks: Sequence[Task]) -> tuple[PartMetrics, ...]:
    """The `evaluation.part_metrics` of an experiment on a mixture of tasks."""
    return tuple(PartMetrics(task.name, task.metrics) for task in tasks)


def tfds_task(
    name: str,
    dataset: str,
    prompt: PromptTemplate,
    head: Callable[[Records], Source] | None,
    *metrics: str,
    splits: tuple[str, ...] = ("train", "validation", "test"),
    submission: str = "",
    submitted: tuple[str | int, ...] = (),
) -> Task:
    """A task over the splits of a TFDS dataset, the last of which may be missing."""
    train, dev, *test = (Tfds(dataset, split) for split in splits)
    return Task(name, train, dev, prompt, head, metrics, *(test or [None]), submission, submitted)


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
    """Classification of texts or pairs of texts on one's own examples; without `dev` a part of `train` is held out.

    The options are those of `LabeledTexts` and `LabelTemplate`; `source` is `template(name, *texts)` where it is empty.

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
    """The name of a task and then each field after its name, as Raffel et al. 2020 write it (appendix D).

    >>> template("mrpc", "sentence1", "sentence2")
    'mrpc sentence1: {sentence1} sentence2: {sentence2}'
    """
    return " ".join([name, *(f"{field}: {{{field}}}" for field in fields)])
