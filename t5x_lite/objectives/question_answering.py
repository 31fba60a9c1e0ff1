"""Fine-tuning on questions whose answers stand in a text (Devlin et al. 2019, sections 4.2 and 4.3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax  # noqa: F401 (read by doctests)
import jax.numpy as jnp  # noqa: F401 (read by doctests)
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.question_answering import ContextQuestion, QuestionWindows
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Predictions, Row, entropy
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.masked_language_model import row_weights
from t5x_lite.objectives.task import TaskObjective, segments_of
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)


@dataclass(frozen=True)
class QuestionAnswering(TaskObjective):
    """The head `question_answering` learns where an answer begins and which is its last token.

    Features are `inputs` [L] and `segments` [L]; `ends` [2], the positions of the answer's first and last token, both 0
    where this window of the text has no answer; `example` [], the number of the question, which has a row for every
    window; and `window` [], which of the text's tokens is the window's first.
    """

    input_length: int = 384
    """Ids of a row, special ones and padding included."""
    stride: int = 128
    """Tokens from the beginning of a window of a long text to that of the next."""
    question_length: int = 64
    """Tokens of a question; the ends of longer ones are cut."""
    answer_length: int = 30
    """Tokens of an answer that the model gives, at most."""
    num_candidates: int = 20
    """Likeliest beginnings, and ends, among which an answer is looked for in each window."""

    head = "question_answering"
    unit: ClassVar[str] = "window"
    submissions = ("squad", "jsonl")

    @cached_property
    def layout(self) -> Layout:
        return QuestionWindows(self.input_length, self.stride, self.question_length)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to its features; nothing is random.

        >>> objective = QuestionAnswering(8, 2, 4).for_vocabulary(Vocabulary(30, cls_id=3, sep_id=4, eos_id=4))
        >>> row = {"ids": jnp.array([3, 10, 4, 22, 23, 24, 25, 4]), "ends": jnp.array([5, 6])}
        >>> row = objective.corrupt(jax.random.key(0), row | {"example": jnp.int32(7), "window": jnp.int32(2)})
        >>> row["segments"].tolist(), row["ends"].tolist(), row["example"].item(), row["window"].item()
        ([0, 0, 0, 1, 1, 1, 1, 1], [5, 6], 7, 2)
        """
        self.check_row(row)
        numbers = {name: row[name] for name in ("ends", "example", "window")}
        return {"inputs": row["ids"], "segments": segments_of(row["ids"], self.known_vocabulary)} | numbers

    def loss_of(
        self, logits: Float[Array, "B L 2"], features: Features
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        """The mean of the two cross entropies, of the beginning and of the end; `accuracy` counts where both are
        right."""
        logits = logits.swapaxes(1, 2)
        weights, ends = row_weights(features), features["ends"]
        losses, _ = cross_entropy(logits, ends)
        total = (losses.mean(axis=1) * weights).sum()
        correct = ((logits.argmax(axis=-1) == ends).all(axis=1) * weights).sum()
        return total, weights.sum(), {"loss": total, "accuracy": correct}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B 2"]:
        """The likeliest beginning and the likeliest end, each for itself."""
        return self.logits(module, params, features).argmax(axis=1)

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B L 2"]:
        """The logits of every place: answers are weighed against each other over all windows of a text."""
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

        The score of an answer is the logit of its first token as a beginning and that of its last as an end; of none,
        those of [CLS], the lowest over the windows (Devlin et al. 2019, section 4.3). A token begins an answer only in
        the window that shows most of what stands around it (the released code). `spans` [T 2] are the first character
        of each of the text's tokens and the one behind its last.
        """
        best, answer, none = -np.inf, (0, 0), np.inf
        for number, (of_row, window) in enumerate(zip(logits, windows, strict=True)):
            none = min(none, float(of_row[0].sum()))
            inside = of_row[window.start : window.start + window.size]
            begins, ends = (np.argsort(-inside[:, side])[: self.num_candidates] for side in (0, 1))
            length = ends[None] - begins[:, None] + 1
            shown = np.array([most_around(windows, window.first + begin) == number for begin in begins.tolist()], bool)
            allowed = (length >= 1) & (length <= self.answer_length) & shown[:, None]
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
            return tokenizer.decode(ids[begin : end + 1]).strip() if 0 < begin <= end else "(none)"

        return (
            f"text:     {tokenizer.decode(ids[segments == 1])}\nquestion: {tokenizer.decode(ids[segments == 0])}\n"
            f"answer:   {answer(*row['ends'].tolist())}\nmodel:    {answer(*row['answers'].tolist())}\n"
        )

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all: half the entropies of both ends."""
        return (entropy(features["ends"][:, 0]) + entropy(features["ends"][:, 1])) / 2


@dataclass(frozen=True)
class Window:
    """A part of a text as it stands in a row."""

    start: int
    """The position of its first token in the row."""
    first: int
    """Which of the text's tokens that is."""
    size: int
    """In tokens."""

    @classmethod
    def of_row(cls, segments: Int[np.ndarray, "L"], first: int) -> "Window":
        """The window of a row, whose text begins with the token `first`."""
        positions = np.flatnonzero(segments)
        # The SEP behind the window is of its segment.
        return cls(int(positions[0]), int(first), len(positions) - 1)


def most_around(windows: Sequence[Window], token: int) -> int:
    """Which window shows most of what stands before or behind a token of the text, whichever is less; the first of
    those that show as much.

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
