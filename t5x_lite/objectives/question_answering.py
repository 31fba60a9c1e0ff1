"""Fine-tuning on questions whose answers are spans of a text (Devlin et al. 2019, sections 4.2 and 4.3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.question_answering import ContextQuestion, QuestionWindows
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Loss, Predictions, entropy, row_weights
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.task import TextTask
from t5x_lite.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class QuestionAnswering(TextTask):
    """The head `question_answering` learns where an answer begins and which is its last token.

    Features are `inputs` [L] and `segments` [L]; `ends` [2], the positions of the answer's first and last token, both 0
    where this window of the text has no answer; `example` [], the number of the question, which has a row for every
    window; and `window` [], which of the text's tokens is the window's first.
    """

    input_length: int = 384
    stride: int = 128
    """Tokens from the beginning of a window of a long text to that of the next."""
    question_length: int = 64
    """Tokens of a question; the ends of longer ones are cut."""
    answer_length: int = 30
    """Tokens of an answer that the model gives, at most."""
    num_candidates: int = 20
    """Likeliest beginnings, and ends, that are searched for an answer in each window."""

    head = "question_answering"
    unit: ClassVar[str] = "window"
    submissions = ("squad", "jsonl")

    @cached_property
    def layout(self) -> Layout:
        return QuestionWindows(self.input_length, self.stride, self.question_length)

    def loss_of(self, outputs: Float[Array, "B L 2"], features: Features, whole: Features) -> Loss:
        """The mean of the cross entropies of the beginning and the end; `accuracy` counts where both are correct."""
        logits, weights, ends = outputs.swapaxes(1, 2), row_weights(features), features["ends"]
        total = (cross_entropy(logits, ends).mean(axis=1) * weights).sum()
        correct = ((logits.argmax(axis=-1) == ends).all(axis=1) * weights).sum()
        return total, weights.sum(), {"loss": total, "accuracy": correct}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B 2"]:
        """The likeliest beginning and the likeliest end, independently."""
        return self.logits(module, params, features).argmax(axis=1)

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B L 2"]:
        """The logits of every position: answers of all windows of a text are compared."""
        return self.logits(module, params, features)

    def predicts(self, model: ModelConfig) -> str:
        return "spans"

    def predictions(
        self,
        outputs: Float[np.ndarray, "N L 2"],
        features: Mapping[str, np.ndarray],
        documents: Iterable[ContextQuestion],
        tokenizer: Tokenizer | None,
        labels: Sequence[str] | None,
    ) -> Predictions:
        """The likeliest span of each question's text, over all of its windows: see `best_answer`."""
        rows_of: dict[int, list[int]] = {}
        for row, example in enumerate(features["example"].tolist()):
            rows_of.setdefault(example, []).append(row)
        texts, answers, names, no_answer = [], [], [], []
        context, spans = None, np.empty((0, 2), np.int32)
        for rows, document in zip(rows_of.values(), documents, strict=False):
            if document.context != context:
                context = document.context
                spans = tokenizer.encode_with_offsets([context])[0].spans
            windows = [Window.of_row(features["segments"][row], int(features["window"][row])) for row in rows]
            text, none = self.best_answer([outputs[row] for row in rows], windows, context, spans)
            texts.append(text)
            answers.append(list(document.answers))
            names.append(document.id)
            no_answer.append(none)
        return Predictions("spans", texts, answers, names, no_answer)

    def best_answer(
        self, logits: Sequence[Float[np.ndarray, "L 2"]], windows: Sequence["Window"], context: str, spans: np.ndarray
    ) -> tuple[str, float]:
        """(the likeliest answer, how much better none fits) of a question, over all windows of its text.

        The score of an answer is the logit of its first token as a beginning plus that of its last as an end; of none,
        those of [CLS], the lowest over the windows (Devlin et al. 2019, section 4.3). A token begins an answer only in
        the window with most context around it (the released code). `spans` [T 2] are the first character of each of the
        text's tokens and the one after its last.
        """
        best, answer, none = -np.inf, (0, 0), np.inf
        for number, (of_row, window) in enumerate(zip(logits, windows, strict=True)):
            none = min(none, float(of_row[window.none].sum()))
            inside = of_row[window.start : window.start + window.size]
            begins, ends = (np.argsort(-inside[:, side])[: self.num_candidates] for side in (0, 1))
            length = ends[None] - begins[:, None] + 1
            shown = np.array([most_around(windows, window.first + begin) == number for begin in begins.tolist()], bool)
            allowed = (length >= 1) & (length <= self.answer_length) & shown[:, None]
            with np.errstate(over="ignore"):  # two logits that are masked are minus infinity together
                scores = np.where(allowed, inside[begins, 0][:, None] + inside[ends, 1][None], -np.inf)
            index = np.unravel_index(int(scores.argmax()), scores.shape)
            if scores[index] > best:
                best = float(scores[index])
                answer = (window.first + begins[index[0]], window.first + ends[index[1]])
        if best == -np.inf:
            return "", np.inf
        begin, end = int(spans[answer[0], 0]), int(spans[answer[1], 1])
        return context[begin:end].strip(), none - best

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        return ("squad",) if all(predictions.references) else ("squad2",)

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """The question, its answer in this window of the text, and the likeliest of the model's."""
        ids, segments = row["inputs"], row["segments"]

        def answer(begin: int, end: int) -> str:
            in_text = segments[begin] == 1 and begin <= end
            return tokenizer.decode_span(ids, begin, end) if in_text else "(none)"

        return (
            f"text:     {tokenizer.decode(ids[segments == 1])}\nquestion: {tokenizer.decode(ids[segments == 0])}\n"
            f"answer:   {answer(*row['ends'].tolist())}\nmodel:    {answer(*row['answers'].tolist())}\n"
        )

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all: half the entropies of both ends."""
        return (entropy(features["ends"][:, 0]) + entropy(features["ends"][:, 1])) / 2


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of a text in a row."""

    start: int
    """The position of its first token in the row."""
    first: int
    """Which of the text's tokens that is."""
    size: int
    none: int = 0
    """The position of [CLS], which stands for no answer."""

    @classmethod
    def of_row(cls, segments: Int[np.ndarray, "L"], first: int) -> "Window":
        """The window of a row, whose text begins with the token `first`."""
        positions, last = np.flatnonzero(segments == 1), np.flatnonzero(segments == 2)
        # The SEP after the window is of its segment.
        return cls(int(positions[0]), int(first), len(positions) - 1, int(last[0]) if len(last) else 0)


def most_around(windows: Sequence[Window], token: int) -> int:
    """The first of the windows with most context before or after a token of the text, whichever is less.

    >>> most_around([Window(0, 0, 8), Window(0, 4, 8)], 5), most_around([Window(0, 0, 8), Window(0, 4, 8)], 6)
    (0, 1)
    """
    around = [
        min(token - window.first, window.first + window.size - 1 - token) + 0.01 * window.size
        if window.first <= token < window.first + window.size
        else -np.inf
        for window in windows
    ]
    return int(np.argmax(around))
