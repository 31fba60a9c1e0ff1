"""What fine-tuning is: a head for the task, and rows of its examples (Devlin et al. 2019, section 4)."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Objective, Predictions
from t5x_lite.objectives.masked_language_model import apply
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True)
class TaskObjective(Objective):
    """Base of objectives that train one head of a task, and the model below it. Nothing is random but dropout.

    The model may be any that has the head: see `models.base.TextModel` for what it offers.
    """

    input_length: int = 128
    """Ids of a row, special ones and padding included."""

    head: ClassVar[Literal["classification", "tagging", "question_answering", "multiple_choice"]]
    """The one that is trained."""
    has_classes: ClassVar[bool] = False
    """Whether `model.num_classes` is the number of the data's labels."""
    roles: ClassVar[tuple[str, ...]] = ("cls", "sep")
    """The tokenizer's special tokens that rows are marked with."""
    submissions: ClassVar[tuple[str, ...]] = ("jsonl", "glue", "superglue")
    """The formats of files that have room for the predictions, the usual one first (see `evaluation.submissions`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.layout  # noqa: B018 (checks its lengths)

    def check_model(self, model: ModelConfig) -> None:
        name = type(self).__name__
        if self.head not in model.task_heads:
            raise InputError(f"model is a {type(model).__name__}, which {name} cannot train; give it {self._models}")
        if self.head not in model.heads:
            classes = " and model.num_classes to the number of classes" if self.has_classes else ""
            raise InputError(
                f"model.heads={model.heads} lacks {self.head}, which {name} trains; set model.heads to ('{self.head}',)"
                f"{classes}"
            )
        if self.input_length > model.max_length:
            raise InputError(
                f"objective.input_length={self.input_length} exceeds model.max_length={model.max_length}; "
                "choose shorter rows or more positions"
            )

    def check_labels(self, model: ModelConfig, labels: tuple[str, ...] | None) -> None:
        if not self.has_classes:
            return
        if labels is None:
            raise InputError(f"{type(self).__name__} learns labels, which the data has not; give {self._source}")
        if max(len(labels), 1) != model.num_classes:
            has = f"{len(labels)} classes" if labels else "numbers for labels, which take one class"
            raise InputError(
                f"model.num_classes={model.num_classes} does not go with the data, which has {has}; "
                f"set model.num_classes to {max(len(labels), 1)}"
            )

    @property
    def _models(self) -> str:
        others = {"classification": ", a BART or a GPT", "multiple_choice": " or a GPT"}
        return f"an encoder{others.get(self.head, ' or a BART')}"

    @property
    def _source(self) -> str:
        return "TaggedWords" if self.head == "tagging" else "LabeledTexts"

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        for role in self.roles:
            if getattr(vocabulary, f"{role}_id") is None:
                raise InputError(
                    f"the tokenizer has no {role} token, which {type(self).__name__} needs; "
                    "use WordPiece, ByteLevelBPE or SentencePiece with layout albert or xlm-roberta"
                )
        return super().for_vocabulary(vocabulary)

    def loss(
        self,
        module: nn.Module,
        params: Any,
        features: Features,
        key: Key[Array, ""] | None,
        *,
        whole: Features | None = None,
        frozen: Any = None,
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        return self.loss_of(self.logits(module, params, features, key), features)

    @abstractmethod
    def loss_of(
        self, logits: Float[Array, "..."], features: Features
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        """(sum, weight, metrics), as `loss` gives them, of what the head says of each row."""

    def logits(
        self, module: nn.Module, params: Any, features: Features, key: Key[Array, ""] | None = None
    ) -> Float[Array, "..."]:
        """What the head says of each row."""
        inputs, segments = self._model_inputs(features)

        def forward(model: nn.Module) -> Float[Array, "..."]:
            valid, deterministic = inputs != self.known_vocabulary.pad_id, key is None
            hidden = model.hidden_states(inputs, segments, inputs_valid=valid, deterministic=deterministic)
            head = getattr(model, f"{self.head}_logits")
            return head(hidden, inputs_valid=valid, deterministic=deterministic)

        return apply(module, params, forward, key)

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Array:
        """What `predictions` are read from, by row: what `predict` gives, unless an objective needs more."""
        return self.predict(module, params, features)

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
        """The predictions for all examples whose rows are all there: here a number for each row.

        Args:
          outputs: what `prediction_outputs` gives, by row.
          features: of the rows, which are the first ones that the documents make.
          documents: the examples; they are read where the text itself is needed.
          tokenizer: that of the rows.
          labels: the names of the classes; empty where labels are numbers, None in data without them.
        """
        references = features["label"].tolist()
        names = list(map(str, range(len(references))))
        return Predictions("numbers" if labels == () else "classes", outputs.tolist(), references, names)

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        """What predictions are scored by where a config names no metrics."""
        return ("accuracy",)

    def _model_inputs(self, features: Features) -> tuple[Int[Array, "B L"], Int[Array, "B L"] | None]:
        """The ids that the model reads, and their segments."""
        return features["inputs"], features.get("segments")


def segments_of(inputs: Int[Array, "L"], vocabulary: Vocabulary) -> Int[Array, "L"]:
    """0 up to the first SEP, 1 behind it, 0 in padding.

    >>> segments_of(jnp.array([3, 10, 4, 11, 4, 0]), Vocabulary(20, cls_id=3, sep_id=4, eos_id=4)).tolist()
    [0, 0, 0, 1, 1, 0]
    """
    second = jnp.arange(len(inputs)) > jnp.argmax(inputs == vocabulary.sep_id)
    return (second & (inputs != vocabulary.pad_id)).astype(inputs.dtype)
