"""What an encoder with the head of a task answers in a notebook: classes, choices, tags, spans of a text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from t5x_lite.data.stored_rows import stack
from t5x_lite.data.tasks.multiple_choice import Choice
from t5x_lite.data.tasks.question_answering import ContextQuestion
from t5x_lite.data.tasks.tagging import TaggedSentence
from t5x_lite.errors import InputError
from t5x_lite.models import EncoderConfig
from t5x_lite.objectives import MultipleChoice, Predictions, QuestionAnswering, Tagging, corrupt_rows
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.pretrained.base import Pretrained
from t5x_lite.pretrained.batches import Batch, Row, Text, is_one, power, row_batches, token_rows

Asking = TypeVar("Asking", bound=TaskObjective)

_ROWS = 32
_MOST_TOKENS = 8192  # of a batch: the outputs of all layers of a large model for it fill half a gigabyte


class LikelyClass(NamedTuple):
    """A class that a text may be of."""

    label: str
    """As it is written in the data that the model was fine-tuned on; its number where that is not known."""
    probability: float
    """That the text is of this class, between 0 and 1."""


class TaggedWord(NamedTuple):
    """A word and the likeliest of its tags."""

    word: str
    tag: str
    """As it is written in the data that the model was fine-tuned on; its number where that is not known."""


class FoundAnswer(NamedTuple):
    """The likeliest answer to a question, as it stands in the text."""

    text: str
    no_answer: float
    """How much better it fits that the text has no answer, in nats: above 0 that is likelier than this answer. A model
    that was fine-tuned on questions which all have one has not learned it."""


@dataclass(frozen=True)
class EncoderTasks(Pretrained):
    """`classify`, `choose`, `tag` and `answer`, each with a head for it."""

    def classify(self, texts: Text | list[Text]) -> list[Any]:
        """The classes that a text may be of, likeliest first; a list of texts gives a list of these.

        Raises `InputError` for a model without a classification head, and one whose head predicts a number.
        """
        config = self._encoder
        if "classification" not in config.heads:
            self._lacks_head("classify", "classification", config)
        if config.num_classes == 1:
            raise InputError(
                "classify needs several classes, and the head of this model predicts a number, which calling the model "
                "gives: model(texts)['classification_logits']"
            )
        labels = self._labels
        answers = [
            sorted(map(LikelyClass, labels, probabilities.tolist()), key=lambda each: -each.probability)
            for probabilities in self._apply(_class_probabilities, self._rows(texts))
        ]
        return answers[0] if is_one(texts) else answers

    def choose(self, context: str, choices: list[str]) -> list[float]:
        """How likely each of several answers to a text is, in their order; together 1.

        Raises `InputError` for a model without the head, and fewer than two answers.
        """
        objective = self._task("choose", MultipleChoice(self._row_length(128)))
        if len(choices) < 2:
            raise InputError(f"choices={choices} leaves nothing to choose; give two or more")
        objective = replace(objective, num_choices=len(choices))
        document = Choice("", context, tuple(choices), 0)
        logits, _ = self._outputs(objective, [document], MultipleChoice.logits)
        return np.asarray(jax.nn.softmax(logits))[0].tolist()

    def tag(self, sentences: str | list[str] | list[list[str]]) -> list[Any]:
        """The tag of each word of a sentence; a list of sentences gives a list. Words stand between blanks, or in a
        list of their own.

        Raises `InputError` for a model without the head, and a sentence without words.
        """
        objective = self._task("tag", Tagging(self._row_length(128)))
        one = isinstance(sentences, str)
        words = [text.split() if isinstance(text, str) else list(text) for text in ([sentences] if one else sentences)]
        if empty := [number for number, some in enumerate(words) if not some]:
            raise InputError(f"sentences[{empty[0]}] has no words; leave it out")
        documents = [TaggedSentence("", tuple(some), (0,) * len(some)) for some in words]
        predictions = self._predictions(objective, documents)
        tagged = [list(map(TaggedWord, *pair)) for pair in zip(words, predictions.predicted, strict=True)]
        return tagged[0] if one else tagged

    def answer(self, question: str, context: str) -> FoundAnswer:
        """The likeliest answer to a question among the spans of a text, however long that is.

        Raises `InputError` for a model without the head.
        """
        length = self._row_length(384)
        objective = self._task("answer", QuestionAnswering(length, max(length // 3, 1), max(length // 4, 1)))
        predictions = self._predictions(objective, [ContextQuestion("", "", question, context, (), ())])
        return FoundAnswer(predictions.predicted[0], predictions.no_answer[0])

    @property
    def _encoder(self) -> EncoderConfig:
        return getattr(self.config, self.config.networks[0]) if self.config.networks else self.config

    @property
    def _pad_id(self) -> int:
        # Without a tokenizer only those know it whose positions depend on it; in BERT's vocabularies it is 0.
        return self.tokenizer.vocabulary.pad_id if self.tokenizer else self._encoder.pad_id or 0

    def _rows(self, texts: Any) -> list[Row]:
        return token_rows(self._tokenizer(), texts, self._encoder.max_length)

    def _apply(self, function: Callable[..., Any], rows: list[Row], *options: Any) -> list[Any]:
        """What `function(module, batch, *options)` gives for each row, of arrays [B ...]; one compilation a shape of
        batch, function and options."""
        found: list[Any] = [None] * len(rows)
        batches = row_batches(rows, pad_id=self._pad_id, longest=self._encoder.max_length, most_tokens=_MOST_TOKENS)
        for indices, batch in batches:
            given = jax.device_get(_apply_function(self.module, function, options, self.params, batch))
            for position, index in enumerate(indices):
                found[index] = jax.tree.map(itemgetter(position), given)
        return found

    @property
    def _labels(self) -> tuple[str, ...]:
        """The names of the classes, so far as the run knows them."""
        count = self._encoder.num_classes
        known = (self.experiment.data.source.classes if self.experiment else None) or ()
        return known if len(known) == count else tuple(map(str, range(count)))

    @property
    def _task_module(self) -> nn.Module:
        """The network that has the heads."""
        return self._encoder.build() if self.config.networks else self.module

    @property
    def _task_params(self) -> Any:
        return self.params[self.config.networks[0]] if self.config.networks else self.params

    def _row_length(self, usual: int) -> int:
        return min(usual, self._encoder.max_length)

    def _task(self, method: str, objective: Asking) -> Asking:
        """The objective that the model was fine-tuned by, if it is one of that kind, else this one."""
        if objective.head not in self._encoder.heads:
            self._lacks_head(method, objective.head, self._encoder)
        own = self.experiment.objective if self.experiment else None
        return (own if isinstance(own, type(objective)) else objective).for_vocabulary(self._tokenizer().vocabulary)

    def _predictions(self, objective: TaskObjective, documents: Sequence[Any]) -> Predictions:
        outputs, features = self._outputs(objective, documents, type(objective).prediction_outputs)
        return objective.predictions(outputs, features, documents, self._tokenizer(), self._labels)

    def _outputs(
        self, objective: Asking, documents: Sequence[Any], function: Callable[..., Array]
    ) -> tuple[np.ndarray, Any]:
        """What a method of the objective gives for the rows of some examples, and their features."""
        builder = objective.layout.start(self._tokenizer().vocabulary)
        for pieces in objective.layout.tokenize(list(documents), self._tokenizer(), "punctuation"):
            builder.add(pieces)
        builder.finish()
        rows = builder.take()
        found = []
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            # As many rows as a power of two, so that few shapes are compiled.
            filled = stack([some[number % len(some)] for number in range(power(len(some), 1))])
            outputs = jax.device_get(_task_outputs(function, objective, self._task_module, self._task_params, filled))
            found.append(jax.tree.map(itemgetter(slice(len(some))), outputs))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *found)

    def _lacks_head(self, method: str, head: str, config: EncoderConfig) -> None:
        raise InputError(
            f"{method} needs the head {head}, and this {type(config).__name__} has heads={config.heads}; "
            f"use {' and '.join(self.abilities)}, or load a model with that head"
        )


def encoder_of(module: nn.Module) -> nn.Module:
    """The network that encodes: of ELECTRA's two the discriminator."""
    networks = module.config.networks
    return getattr(module, networks[0]) if networks else module


@partial(jax.jit, static_argnums=(0, 1, 2))
def _apply_function(
    module: nn.Module, function: Callable[..., Any], options: tuple[Any, ...], params: Any, batch: Batch
) -> Any:
    return module.apply({"params": params}, batch, *options, method=function)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _task_outputs(
    function: Callable[..., Array], objective: TaskObjective, module: nn.Module, params: Any, batch: Any
) -> tuple[Array, Any]:
    features = corrupt_rows(objective, jax.random.key(0), batch)
    return function(objective, module, params, features), features


def _class_probabilities(module: nn.Module, batch: Batch) -> Float[Array, "B C"]:
    model = encoder_of(module)
    hidden = model.hidden_states(batch.ids, batch.segments, inputs_valid=batch.valid)
    return jax.nn.softmax(model.classification_logits(hidden))
