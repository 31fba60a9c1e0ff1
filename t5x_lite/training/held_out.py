"""All that is asked of a model about held-out rows: the loss, the words, and what it writes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from t5x_lite.data import Tokenizer
from t5x_lite.tasks.answers import Answers
from t5x_lite.tasks.scores import score_answers
from t5x_lite.training.answers import BatchGenerator, EvalPrompt, questions_of_rows
from t5x_lite.training.evaluation import Rows, evaluate, held_out_features
from t5x_lite.training.step import Program
from t5x_lite.training.task_answers import BatchPredictor
from t5x_lite.training.text_metrics import Scores, TextMetric, score


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
        text_metrics: tuple[TextMetric, ...] | None = None,
    ):
        self.program, self.tokenizer, self.rows = program, tokenizer, rows
        self.settings = program.experiment.evaluation
        if text_metrics is not None:
            self.settings = replace(self.settings, text_metrics=text_metrics)
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
