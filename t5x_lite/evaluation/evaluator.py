"""Figures on held-out rows: the loss and the scores of predictions and texts, alone or by part of a mixture."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from t5x_lite.data import MixtureStore, Source, TextTemplate, TextToText, Tokenizer, TokenStore
from t5x_lite.evaluation.generation import BatchGenerator, EvalPrompt, questions_of, questions_of_rows
from t5x_lite.evaluation.predictions import BatchPredictor, Rows, evaluate, held_out_features
from t5x_lite.metrics import Metric
from t5x_lite.metrics.scores import Scores, metrics_of, score
from t5x_lite.objectives import Predictions
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
      metrics: what predictions are scored by, if not by those of the experiment.
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
        metrics: Sequence[str | Metric] | None = None,
    ):
        self.program, self.tokenizer, self.rows = program, tokenizer, rows
        self.settings = program.experiment.evaluation
        self.metrics = metrics_of(self.settings.metrics if metrics is None else metrics)
        self._questions, self.documents, self.words_of_classes = questions, documents, words

    def evaluate(self, params: Any) -> Scores:
        """Loss, accuracy, perplexity by token and, of texts, by word; then the metrics of what is predicted."""
        figures = self.loss_figures(params)
        if self.program.objective.targets_are_text:
            nats_a_word = figures["loss"] * figures["tokens"] / max(self.words, 1)
            figures["word_perplexity"] = math.exp(min(nats_a_word, 700.0))
        if not self.metrics:
            return Scores(figures)
        scores = score(self.predictions(params), self.metrics)
        return replace(scores, figures=figures | scores.figures)

    def loss_figures(self, params: Any) -> dict[str, float]:
        """The loss, and what else the objective measures beside it."""
        return evaluate(self.program, params, self.rows, max_rows=self.settings.rows)

    def predictions(self, params: Any) -> Predictions:
        """What the model predicts for the examples of a task, or writes to the questions."""
        if not self.program.objective.asks_for_text:
            return self._predictor.predictions(params)
        return Predictions(
            "texts",
            self._generator.answers(params),
            [question.right for question in self.questions],
            words=self.words_of_classes,
            groups=[question.group for question in self.questions],
        )

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
    def _predictor(self) -> BatchPredictor:
        return BatchPredictor(self.program, self.tokenizer, self.rows, self.documents)

    @cached_property
    def _generator(self) -> BatchGenerator:
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
        and `average_score`, of each part's mean over the figures of its metrics; then the figures of each part, its
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
        shares = [[metric.share(one.figures[name]) for name, metric in one.metrics.items()] for one in scores.values()]
        if means := [np.mean(of_part) for of_part in shares if of_part]:
            figures["average_score"] = float(np.mean(means))
        for name, one in scores.items():
            shown = dict.fromkeys(figure for figure in (*_OF_A_PART, *one.metrics) if figure in one.figures)
            figures |= {f"{name}/{figure}": one.figures[figure] for figure in shown}
        metrics = {f"{name}/{figure}": metric for name, one in scores.items() for figure, metric in one.metrics.items()}
        return Scores(figures, metrics)

    def _measured(self, scores: Mapping[str, Scores]) -> list[str]:
        """What every part has beside its metrics, and no sum or power."""
        apart = {f"{self.program.objective.unit}s", "perplexity", "word_perplexity"}
        first, *others = [one.figures.keys() - one.metrics.keys() - apart for one in scores.values()]
        kept = first.intersection(*others)
        return [name for name in next(iter(scores.values())).figures if name in kept]

    @cached_property
    def baseline_loss(self) -> float:
        """The mean over the parts."""
        return float(np.mean([part.baseline_loss for part in self.parts.values()]))


def held_out_of(
    program: Program,
    store: TokenStore,
    questions: Sequence[EvalPrompt] | None = None,
    words: tuple[str, ...] = (),
) -> Evaluator | MixtureEvaluator:
    """What finds out about the held-out rows of a store, with the questions that its sources ask.

    A source of tasks knows every answer that is right; of others the held-out targets are the references. Where there
    is no mixture, `questions` are decoded in their place, whose classes have these `words`.

    Raises `InputError` for metrics that lack what they need of the questions.
    """
    data, evaluation = program.experiment.data, program.experiment.evaluation
    if not isinstance(store, MixtureStore):
        source = data.held_out_source or data.source
        words = source.classes or words
        return _evaluator(program, store, data.held_out_source, evaluation.metrics, words, questions)
    return MixtureEvaluator(
        program,
        {
            part.name: _evaluator(
                program,
                store.parts[part.name],
                part.held_out_source,
                part_metrics(evaluation, part.name),
                (part.held_out_source or part.source).classes or (),
            )
            for part in data.source.parts
        },
    )


def part_metrics(evaluation: Evaluation, part: str) -> tuple[str | Metric, ...]:
    """What the answers to one part of a mixture are scored by."""
    return {one.part: one.metrics for one in evaluation.part_metrics}.get(part, evaluation.metrics)


def _evaluator(
    program: Program,
    store: TokenStore,
    held_out_source: Source | None,
    metrics: Sequence[str | Metric],
    words: tuple[str, ...],
    questions: Sequence[EvalPrompt] | None = None,
) -> Evaluator:
    objective, tokenizer, is_text = program.objective, store.tokenizer, program.objective.asks_for_text
    # A template may know more of the correct answers than the targets of the rows say.
    prompt = held_out_source.prompt if isinstance(held_out_source, TextToText) else None
    if questions is None and metrics and is_text and prompt and not isinstance(prompt, TextTemplate):
        length = objective.input_length if getattr(objective, "too_long", "cut") == "cut" else None
        examples = itertools.islice(held_out_source.eval_examples(), program.experiment.evaluation.num_texts)
        questions = questions_of(examples, tokenizer, length)
    if metrics and is_text:
        # What a metric lacks is an error now and not at the first evaluation, hours later.
        first = questions[0] if questions else EvalPrompt((), (words[0] if words else "0",))
        score(Predictions("texts", [first.right[0]], [first.right], words=words, groups=[first.group]), metrics)
    documents = store.held_out_documents
    return Evaluator(program, tokenizer, store.held_out, questions, documents, words=words, metrics=metrics)
