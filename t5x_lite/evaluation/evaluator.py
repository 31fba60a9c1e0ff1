"""Figures on held-out rows: the loss and the scores of predictions, of one source or of each part of a mixture."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from t5x_lite.data import Data, MixtureStore, Part, TextTemplate, TextToText, Tokenizer, TokenStore
from t5x_lite.data.stored_rows import read_rows, stack
from t5x_lite.evaluation.predictions import (
    BatchGenerator,
    EvalPrompt,
    MeshFunction,
    Rows,
    evaluate,
    held_out_features,
    questions_of,
    questions_of_rows,
)
from t5x_lite.metrics import Metric
from t5x_lite.metrics.scores import Scores, metrics_of, score
from t5x_lite.objectives import Predictions, Row, corrupt_rows
from t5x_lite.training.experiment import Evaluation
from t5x_lite.training.step import Program


@dataclass(eq=False)
class Evaluator:
    """Figures of parameters on held-out rows; what depends on the rows alone is computed once."""

    program: Program
    tokenizer: Tokenizer
    rows: Rows
    given_questions: Sequence[EvalPrompt] | None = None
    """To answer instead of the inputs of the rows."""
    documents: Callable[[], Iterator[Any]] = lambda: iter(())
    """Reads the examples of the rows, for the metrics of tasks."""
    words_of_classes: tuple[str, ...] = ()
    """The answer of each class, in a task with classes."""
    metrics: Sequence[str | Metric] | None = None
    """Of the predictions; by default those of the experiment."""

    def __post_init__(self) -> None:
        self.settings = self.program.experiment.evaluation
        self.metrics = metrics_of(self.settings.metrics if self.metrics is None else self.metrics)

    def evaluate(self, params: Any) -> Scores:
        """Loss, accuracy, perplexity by token and, of texts, by word; then the metrics of the predictions."""
        figures = self.loss_figures(params)
        if self.program.objective.targets_are_text:
            nats_a_word = figures["loss"] * figures["tokens"] / max(self.words, 1)
            figures["word_perplexity"] = math.exp(min(nats_a_word, 700.0))
        if not self.metrics:
            return Scores(figures)
        scores = score(self.predictions(params), self.metrics)
        return replace(scores, figures=figures | scores.figures)

    @property
    def parts(self) -> dict[str, "Evaluator"]:
        """This one; a mixture has several."""
        return {"": self}

    def mean(self, scores: Mapping[str, Scores]) -> Scores:
        return scores[""]

    def loss_figures(self, params: Any) -> dict[str, float]:
        """The loss and the other figures of the objective."""
        return evaluate(self.program, params, self.rows, max_rows=self.settings.rows)

    def predictions(self, params: Any) -> Predictions:
        """What the model predicts for the examples of a task, or its answers to the questions."""
        objective = self.program.objective
        if objective.asks_for_text:
            right, groups = ([getattr(one, name) for one in self.questions] for name in ("right", "group"))
            return Predictions(
                "texts", self._generator.answers(params), right, words=self.words_of_classes, groups=groups
            )
        count = min(self.settings.rows, len(self.rows))
        read = lambda numbers: stack(read_rows(self.rows, numbers.tolist()))  # noqa: E731
        outputs, features = self._predict(params, count, read)
        if count < len(self.rows) and "example" in features:
            # The last example may have more rows, which were not read.
            complete = features["example"] != features["example"][-1]
            outputs, features = jax.tree.map(lambda part: part[complete], (outputs, features))
        labels = self.program.experiment.data.source.classes
        return objective.predictions(outputs, features, self.documents(), self.tokenizer, labels)

    @cached_property
    def features(self) -> dict[str, np.ndarray]:
        """Of the rows, as `evaluate` computes them."""
        objective, experiment = self.program.objective, self.program.experiment
        features = held_out_features(objective, self.rows, self.settings.rows, objective.features_on_host)
        if objective.compares_rows:
            count = min(self.settings.rows, len(self.rows))
            features["rows"] = rows_of_batches(count, experiment.batch_size // experiment.accumulation)
        return features

    @cached_property
    def baseline_loss(self) -> float:
        """Of the best model that does not read the inputs."""
        return self.program.objective.baseline_loss(self.features, self.program.experiment.model)

    @cached_property
    def words(self) -> int:
        return count_words(self.features["targets"], self.tokenizer)

    @cached_property
    def questions(self) -> Sequence[EvalPrompt]:
        """What is answered and scored."""
        if self.given_questions is not None:
            return self.given_questions
        count = self.settings.num_texts
        objective = self.program.objective
        features = held_out_features(objective, self.rows, count, objective.features_on_host)
        return questions_of_rows(features, self.tokenizer, count)

    @cached_property
    def _generator(self) -> BatchGenerator:
        return BatchGenerator(self.program, self.questions, self.tokenizer, self.settings)

    @cached_property
    def _predict(self) -> MeshFunction:
        objective, experiment = self.program.objective.for_evaluation(), self.program.experiment

        def predict(params: Any, batch: Row) -> Any:
            features = corrupt_rows(objective, jax.random.key(0), batch)
            outputs = objective.prediction_outputs(self.program.module, params, features)
            return outputs, objective.features_on_host(features)

        return MeshFunction(self.program, predict, experiment.batch_size // experiment.accumulation)


def rows_of_batches(count: int, batch_size: int) -> Int[np.ndarray, "N"]:
    """How many rows are in each row's batch, of which the last has the rest.

    >>> rows_of_batches(5, 3).tolist()
    [3, 3, 3, 2, 2]
    """
    sizes = np.diff([*range(0, count, batch_size), count])
    return np.repeat(sizes, sizes)


def count_words(targets: Int[np.ndarray, "B L"], tokenizer: Tokenizer) -> int:
    """The words between white space in the texts of rows, each of which ends at an EOS.

    A word that continues in the next row counts in both.
    """
    vocabulary, decode = tokenizer.vocabulary, tokenizer.target_side.decode
    words = 0
    for row in targets:
        ends = np.flatnonzero((row == vocabulary.eos_id) | (row == vocabulary.pad_id))
        words += sum(len(decode(part.tolist()).split()) for part in np.split(row, ends))
    return words


@dataclass(frozen=True)
class MixtureEvaluator:
    """The parts of a mixture by name, each with its own figures."""

    program: Program
    parts: Mapping[str, Evaluator]

    def evaluate(self, params: Any) -> Scores:
        """See `mean`."""
        return self.mean({name: part.evaluate(params) for name, part in self.parts.items()})

    def mean(self, scores: Mapping[str, Scores]) -> Scores:
        """Means over the parts, each counting the same, and after them the figures of each part, by its name and a
        slash.

        The means are those of the objective's figures; the perplexity is that of the mean loss, and `average_score` the
        mean over the parts of the mean over the figures of a part's metrics.
        """
        unit, of_parts = f"{self.program.objective.unit}s", [one.figures for one in scores.values()]
        # What every part has beside its metrics, without sums and powers.
        names = [one.figures.keys() - one.metrics.keys() for one in scores.values()]
        names = set.intersection(*names) - {unit, "perplexity", "word_perplexity"}
        figures = {name: float(np.mean([one[name] for one in of_parts])) for name in of_parts[0] if name in names}
        figures[unit] = sum(one[unit] for one in of_parts)
        if unit == "tokens":
            figures["perplexity"] = math.exp(min(figures["loss"], 700.0))
        shares = [[metric.share(one.figures[name]) for name, metric in one.metrics.items()] for one in scores.values()]
        if means := [np.mean(of_part) for of_part in shares if of_part]:
            figures["average_score"] = float(np.mean(means))
        metrics = {}
        for name, one in scores.items():
            shown = dict.fromkeys(figure for figure in ("loss", "accuracy", *one.metrics) if figure in one.figures)
            figures |= {f"{name}/{figure}": one.figures[figure] for figure in shown}
            metrics |= {f"{name}/{figure}": metric for figure, metric in one.metrics.items()}
        return Scores(figures, metrics)

    @cached_property
    def baseline_loss(self) -> float:
        return float(np.mean([part.baseline_loss for part in self.parts.values()]))


def held_out_of(
    program: Program,
    store: TokenStore,
    questions: Sequence[EvalPrompt] | None = None,
    words: tuple[str, ...] = (),
) -> Evaluator | MixtureEvaluator:
    """The evaluator of the held-out rows of a store, with the questions of its sources.

    A source of tasks knows all correct answers; elsewhere the held-out targets are the references. Without a mixture,
    `questions` replace them, whose classes have these `words`.

    Raises `InputError` for metrics that lack what they need of the questions.
    """
    data, settings = program.experiment.data, program.experiment.evaluation
    if not isinstance(store, MixtureStore):
        return _evaluator(program, store, data, settings.metrics, words, questions)
    parts = {
        part.name: _evaluator(program, store.parts[part.name], part, part_metrics(settings, part.name))
        for part in data.source.parts
    }
    return MixtureEvaluator(program, parts)


def part_metrics(evaluation: Evaluation, part: str) -> tuple[str | Metric, ...]:
    return {one.part: one.metrics for one in evaluation.part_metrics}.get(part, evaluation.metrics)


def _evaluator(
    program: Program,
    store: TokenStore,
    data: Data | Part,
    metrics: Sequence[str | Metric],
    words: tuple[str, ...] = (),
    questions: Sequence[EvalPrompt] | None = None,
) -> Evaluator:
    objective, tokenizer, held_out_source = program.objective, store.tokenizer, data.held_out_source
    words = store.classes or (held_out_source or data.source).classes or words
    if metrics and objective.asks_for_text:
        # A template may know more correct answers than the targets of the rows.
        prompt = held_out_source.prompt if isinstance(held_out_source, TextToText) else None
        if questions is None and prompt and not isinstance(prompt, TextTemplate):
            length = objective.input_length if getattr(objective, "too_long", "cut") == "cut" else None
            examples = itertools.islice(held_out_source.eval_examples(), program.experiment.evaluation.num_texts)
            questions = questions_of(examples, tokenizer, length)
        # What a metric lacks is an error now and not at the first evaluation, hours later.
        first = questions[0] if questions else EvalPrompt((), (words[0] if words else "0",))
        score(Predictions("texts", [first.right[0]], [first.right], words=words, groups=[first.group]), metrics)
    return Evaluator(program, tokenizer, store.held_out, questions, store.held_out_documents, words, metrics)
