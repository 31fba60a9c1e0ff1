"""What tasks are: answers to labelled examples; of texts a head, and rows of them (Devlin et al. 2019, section 4)."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.layouts.base import SpecialIds
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import DropoutKey, Features, Objective, Predictions, Row, check_length, entropy
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)

TOP = 5
"""Answers of which one must be correct for `top_5_accuracy`."""


@dataclass(frozen=True)
class TaskObjective(Objective):
    """Base of objectives that learn the answers to labelled examples, so that a model's answers to held-out ones can be
    scored: classes unless an objective says otherwise.

    An objective defines `logits` and what trains it; its features have the number of the class as `label` [].
    """

    unit: ClassVar[Literal["token", "word", "example", "window"]] = "example"
    has_independent_classes: ClassVar[bool] = False
    """Whether the sigmoid of a logit is the probability of its class, not the softmax over all."""
    submissions: ClassVar[tuple[str, ...]] = ("jsonl",)
    """The formats of files of predictions, the usual one first (see `evaluation.submissions`)."""

    @abstractmethod
    def logits(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "..."]:
        """What the model gives for its answers, deterministic."""

    def predict(self, module: nn.Module, params: Any, features: Features) -> Array:
        """The number of the likeliest class or choice of each row."""
        return self.logits(module, params, features).argmax(axis=-1)

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Array:
        """What `predictions` are read from, by row: by default the numbers of the likeliest classes, [B K], K at most
        `TOP`, the likeliest first, of equals the one with the lower number."""
        logits = self.logits(module, params, features).astype(jnp.float32)
        return jax.lax.top_k(logits, min(TOP, logits.shape[-1]))[1]

    def predicts(self, model: ModelConfig) -> str:
        return "classes"

    def predictions(
        self,
        outputs: np.ndarray,
        features: Mapping[str, np.ndarray],
        documents: Iterable[Any],
        tokenizer: Tokenizer | None,
        labels: Sequence[str] | None,
    ) -> Predictions:
        """The predictions for all examples with all of their rows: here a class for each row.

        Args:
          outputs: what `prediction_outputs` gives, by row.
          features: of the rows, which are the first ones that the documents make.
          documents: the examples; they are read where the text itself is needed.
          tokenizer: that of the rows.
          labels: the names of the classes; empty where labels are numbers, None in data without them.
        """
        references, ranked = features["label"].tolist(), outputs.tolist()
        names = list(map(str, range(len(references))))
        return Predictions("classes", [row[0] for row in ranked], references, names, ranked=ranked)

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        """What predictions are scored by where a config names no metrics."""
        return ("accuracy",)

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all: the entropy of the labels."""
        return entropy(features["label"])


@dataclass(frozen=True)
class TextTask(TaskObjective):
    """Base of tasks of texts: one head and the model below it are trained. Nothing is random but dropout.

    The model may be any that has the head: see `models.base.TextModel` for what it offers.

    Features are the columns of a row, `ids` as `inputs`, and `segments`: see `corrupt`.
    """

    input_length: int = 128
    """Ids of a row, special ones and padding included."""

    head: ClassVar[Literal["classification", "tagging", "question_answering", "multiple_choice"]]
    """The one that is trained."""
    has_classes: ClassVar[bool] = False
    """Whether `model.num_classes` is the number of the data's labels."""
    roles: ClassVar[tuple[str, ...]] = ("cls", "sep")
    has_segments: ClassVar[bool] = True
    submissions: ClassVar[tuple[str, ...]] = ("jsonl", "glue", "superglue")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.layout  # noqa: B018 (checks its lengths)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to its features; nothing is random.

        >>> from t5x_lite.objectives import Classification
        >>> objective = Classification(8).for_vocabulary(Vocabulary(20, cls_id=3, sep_id=4, eos_id=4))
        >>> row = {"ids": jnp.array([3, 10, 4, 11, 12, 4, 0, 0]), "label": jnp.float32(2.5)}
        >>> row = objective.corrupt(jax.random.key(0), row)
        >>> row["inputs"].tolist(), row["segments"].tolist(), row["label"].item()
        ([3, 10, 4, 11, 12, 4, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0], 2.5)
        """
        self.check_row(row)
        others = {name: column for name, column in row.items() if name != "ids"}
        reads_segments = self.has_segments or self.special_ids.cls_last
        segments = {"segments": self.segments_of(row["ids"])} if reads_segments else {}
        return {"inputs": row["ids"]} | segments | others

    def segments_of(self, ids: Int[Array, "*batch L"]) -> Int[Array, "*batch L"]:
        """0 up to the separator of two texts, 1 after it up to the end; else 0; and 2 of a [CLS] that comes last."""
        special = self.special_ids
        separator_id = special.sep_id if special.delimiter_id is None else special.delimiter_id
        segments = masking.segments_of(ids, separator_id, special.pad_id, special.separators)
        return jnp.where(ids == special.cls_id, 2, segments) if special.cls_last else segments

    @property
    def special_ids(self) -> SpecialIds:
        """The ids around the texts of a row."""
        return self.layout.special_ids(self.known_vocabulary)

    def check_model(self, model: ModelConfig) -> None:
        name = type(self).__name__
        if self.head not in model.task_heads:
            others = {"classification": ", a BART or a GPT", "multiple_choice": " or a GPT"}
            raise InputError(
                f"model is a {type(model).__name__}, which {name} cannot train; "
                f"give it an encoder{others.get(self.head, ' or a BART')}"
            )
        if self.head not in model.heads:
            classes = " and model.num_classes to the number of classes" if self.has_classes else ""
            raise InputError(
                f"model.heads={model.heads} lacks {self.head}, which {name} trains; set model.heads to ('{self.head}',)"
                f"{classes}"
            )
        check_length(self.input_length, model)

    def check_labels(self, model: ModelConfig, labels: tuple[str, ...] | None) -> None:
        if not self.has_classes:
            return
        if labels is None:
            source = "TaggedWords" if self.head == "tagging" else "LabeledTexts"
            raise InputError(f"{type(self).__name__} learns labels, which the data has not; give {source}")
        if max(len(labels), 1) != model.num_classes:
            has = f"{len(labels)} classes" if labels else "numbers for labels, which take one class"
            raise InputError(
                f"model.num_classes={model.num_classes} does not go with the data, which has {has}; "
                f"set model.num_classes to {max(len(labels), 1)}"
            )

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> Any:
        inputs, deterministic = features["inputs"], key is None
        valid = inputs != self.known_vocabulary.pad_id
        hidden = model.hidden_states(inputs, features.get("segments"), inputs_valid=valid, deterministic=deterministic)
        return getattr(model, f"{self.head}_logits")(hidden, inputs_valid=valid, deterministic=deterministic)

    def logits(self, module: nn.Module, params: Any, features: Features, key: DropoutKey = None) -> Float[Array, "..."]:
        return self.apply(module, params, features, key)
