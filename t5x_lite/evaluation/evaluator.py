"""Figures on held-out rows: the loss and the scores of predictions and texts, alone or by part of a mixture."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from t5x_lite.data import MixtureStore, Source, TextTemplate, TextToText, Tokenizer, TokenStore
from t5x_lite.evaluation.answers import Answers
from t5x_lite.evaluation.generation import BatchGenerator, EvalPrompt, questions_of, questions_of_rows
from t5x_lite.evaluation.metric_names import Metric, figures_in_per_cent
from t5x_lite.evaluation.predictions import BatchPredictor, Rows, evaluate, held_out_features
from t5x_lite.evaluation.scores import score_answers
from t5x_lite.evaluation.text_metrics import IN_PER_CENT, Scores, TextMetric, score
from t5x_lite.training.experiment import Evaluation
from t5x_lite.training.step import Program


class Evaluator:
    """Held-out rows, and what is found out about them once for all parameters of a run.

    Args:
      program: the experiment on its mesh.
      tokenizer: that of the rows.
      rows: of the store.
      questions: to decode in place of the rows' own inputs.
      documents: reads what the rows were made of, for the metrics of tasks.
      words: those that answer the questions, by class, where they are of a task with classes.
      text_metrics: what answers are scored by, if not by those of the experiment.
    """

    def __init__(
        self,
        program: Program,
        tokenizer: Tokenizer,
        rows: Rows,
        questions: Sequence[EvalPrompt] | None = None,
        documents: Callable[[], Iterator[Any]] = lambda: iter(()),
        *,
        words: tuple[str, ...] = (),
        text_metrics: tuple[TextMetric | Metric, ...] | None = None,
    ):
        self.program, self.tokenizer, self.rows = program, tokenizer, rows
        self.settings = program.experiment.evaluation
        if text_metrics is not None:
            self.settings = replace(self.settings, text_metrics=text_metrics)
        if not program.objective.asks_for_text:
            task_metrics = (*self.settings.task_metrics, *self.settings.metrics)
            self.settings = replace(self.settings, task_metrics=task_metrics)
        self._questions, self.documents, self.words_of_classes = questions, documents, words

    def evaluate(self, params: Any) -> Scores:
        """Loss, accuracy, perplexity by token and, of texts, by word; then the metrics of what is decoded."""
        figures = self.loss_figures(params)
        if self.program.objective.targets_are_text:
            nats_a_word = figures["loss"] * figures["tokens"] / max(self.words, 1)
            figures["word_perplexity"] = math.exp(min(nats_a_word, 700.0))
        if self.settings.task_metrics:
            figures |= score_answers(self.task_answers(params), self.settings.task_metrics)
        if not self.settings.text_metrics:
            return Scores(figures)
        texts = self._sheet.answers(params)
        scores = score(
            texts,
            [question.right for question in self.questions],
            self.settings.text_metrics,
            words=self.words_of_classes,
            groups=[question.group for question in self.questions],
        )
        return Scores(figures | scores.figures, scores.signatures, scores.figures, tuple(texts))

    def loss_figures(self, params: Any) -> dict[str, float]:
        """The loss, and what else the objective measures beside it."""
        return evaluate(self.program, params, self.rows, max_rows=self.settings.rows)

    def task_answers(self, params: Any) -> Answers:
        """What the model answers to the examples of a task."""
        return self._task_sheet.answers(params)

    @cached_property
    def features(self) -> dict[str, np.ndarray]:
        """Of the rows, as `evaluate` asks about them."""
        return held_out_features(self.program.objective, self.rows, self.settings.rows)

    @cached_property
    def baseline_loss(self) -> float:
        """Of the best model that does not look at the inputs."""
        return self.program.objective.baseline_loss(self.features, self.program.experiment.model)

    @cached_property
    def words(self) -> int:
        """Words in the targets."""
        return count_words(self.features["targets"], self.tokenizer)

    @cached_property
    def questions(self) -> Sequence[EvalPrompt]:
        """What is decoded and scored."""
        if self._questions is not None:
            return self._questions
        wanted = min(self.settings.num_texts, len(self.rows))
        features = held_out_features(self.program.objective, self.rows, wanted)
        return questions_of_rows(features, self.tokenizer, self.settings.num_texts)

    @cached_property
    def _task_sheet(self) -> BatchPredictor:
        return BatchPredictor(self.program, self.tokenizer, self.rows, self.documents)

    @cached_property
    def _sheet(self) -> BatchGenerator:
        return BatchGenerator(self.program, self.questions, self.tokenizer, self.settings)


def count_words(targets: Int[np.ndarray, "B L"], tokenizer: Tokenizer) -> int:
    """The words between white space in rows of ids, which are cut at each EOS and read as text.

    A word that the end of a row cuts in two counts in both rows.
    """
    vocabulary, decode = tokenizer.vocabulary, tokenizer.target_side.decode
    words = 0
    for row in targets:
        ends = np.flatnonzero((row == vocabulary.eos_id) | (row == vocabulary.pad_id))
        words += sum(len(decode(part.tolist()).split()) for part in np.split(row, ends))
    return words


_OF_A_PART = ("loss", "accuracy")
"""The figures of each part beside the metrics of its generated texts."""


class MixtureEvaluator:
    """The parts of a mixture, each with its own figures.

    Args:
      program: the experiment on its mesh.
      parts: by name.
    """

    def __init__(self, program: Program, parts: Mapping[str, Evaluator]):
        self.program, self.parts = program, dict(parts)

    def evaluate(self, params: Any) -> Scores:
        """Means over the parts, each counting the same: what the objective measures, the perplexity of the mean loss,
        and `average_score`, of each part's mean over its metrics of what is written; then the figures of each part, its
        name and a slash in front."""
        return self.mean({name: part.evaluate(params) for name, part in self.parts.items()})

    def mean(self, scores: Mapping[str, Scores]) -> Scores:
        """All figures, from those of each part."""
        of_parts = [one.figures for one in scores.values()]
        figures = {name: float(np.mean([one[name] for one in of_parts])) for name in self._measured(scores)}
        unit = f"{self.program.objective.unit}s"
        figures[unit] = sum(one[unit] for one in of_parts)
        if unit == "tokens":
            figures["perplexity"] = math.exp(min(figures["loss"], 700.0))
        written = {name: one.written for name, one in scores.items()}
        if means := [np.mean([_share(*figure) for figure in one.items()]) for one in written.values() if one]:
            figures["average_score"] = float(np.mean(means))
        for name, one in scores.items():
            shown = {figure: one.figures[figure] for figure in _OF_A_PART if figure in one.figures}
            figures |= {f"{name}/{figure}": value for figure, value in (shown | written[name]).items()}
        signatures = {
            f"{name}/{figure}": text for name, one in scores.items() for figure, text in one.signatures.items()
        }
        return Scores(figures, signatures)

    def _measured(self, scores: Mapping[str, Scores]) -> list[str]:
        """What every part has beside what was written, and no sum or power."""
        apart = {f"{self.program.objective.unit}s", "perplexity", "word_perplexity"}
        first, *others = [one.figures.keys() - one.written.keys() - apart for one in scores.values()]
        kept = first.intersection(*others)
        return [name for name in next(iter(scores.values())).figures if name in kept]

    @cached_property
    def baseline_loss(self) -> float:
        """The mean over the parts."""
        return float(np.mean([part.baseline_loss for part in self.parts.values()]))


def _share(name: str, figure: float) -> float:
    return figure / 100 if name in IN_PER_CENT or name in figures_in_per_cent() else figure


def held_out_of(
    program: Program,
    store: TokenStore,
    questions: Sequence[EvalPrompt] | None = None,
    words: tuple[str, ...] = (),
) -> Evaluator | MixtureEvaluator:
    """What finds out about the held-out rows of a store, with the questions that its sources ask.

    A source of tasks knows every answer that is right; of others the held-out targets are the references. Where there
    is no mixture, `questions` are asked in place of those, whose classes have these `words`.

    Raises `InputError` for metrics that lack what they need of the questions.
    """
    data, evaluation = program.experiment.data, program.experiment.evaluation
    own = evaluation.metrics if program.objective.asks_for_text else ()
    if not isinstance(store, MixtureStore):
        part = _Part(data.source, data.held_out_source, (*evaluation.text_metrics, *own))
        return part.held_out(program, store, questions, words)
    return MixtureEvaluator(
        program,
        {
            part.name: _Part(part.source, part.held_out_source, (*metrics_of(evaluation, part.name), *own)).held_out(
                program, store.parts[part.name]
            )
            for part in data.source.parts
        },
    )


def metrics_of(evaluation: Evaluation, part: str) -> tuple[TextMetric | Metric, ...]:
    """What the answers to one part of a mixture are scored by."""
    own = {one.part: one.text_metrics for one in evaluation.part_metrics}
    return own.get(part, evaluation.text_metrics)


class _Part(NamedTuple):
    """A corpus, what is held out of it, and what answers are scored by."""

    source: Source
    held_out_source: Source | None
    metrics: tuple[TextMetric | Metric, ...]

    def held_out(
        self,
        program: Program,
        store: TokenStore,
        questions: Sequence[EvalPrompt] | None = None,
        words: tuple[str, ...] = (),
    ) -> Evaluator:
        source = self.held_out_source or self.source
        words = source.classes or words
        # A template may know more of the right answers than the targets of the rows say.
        prompt = self.held_out_source.prompt if isinstance(self.held_out_source, TextToText) else None
        if questions is None and self.metrics and prompt and not isinstance(prompt, TextTemplate):
            questions = self._questions(program, store.tokenizer)
        if self.metrics:
            # Said now and not at the first evaluation, hours later.
            first = questions[0] if questions else EvalPrompt((), (words[0] if words else "0",))
            score([first.right[0]], [first.right], self.metrics, words=words, groups=[first.group])
        return Evaluator(
            program,
            store.tokenizer,
            store.held_out,
            questions,
            store.held_out_documents,
            words=words,
            text_metrics=self.metrics,
        )

    def _questions(self, program: Program, tokenizer: Tokenizer) -> list[EvalPrompt]:
        """Those of a source that knows more of its answers than its pairs say."""
        objective = program.objective
        length = objective.input_length if getattr(objective, "too_long", "cut") == "cut" else None
        asked = itertools.islice(self.held_out_source.eval_examples(), program.experiment.evaluation.num_texts)
        return questions_of(asked, tokenizer, length)
