"""Fine-tuning on whole texts and pairs of texts: which class, or which number (Devlin et al. 2019, section 4.1)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.formats import Labeled, RowFormat
from t5x_lite.data.vocabulary import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Objective, entropy
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.masked_language_model import apply, row_weights


@dataclass(frozen=True)
class Classification(Objective):
    """The head `classification` learns the labels of examples: with several classes by cross entropy, with one, which
    stands for a number, by the squared error.

    Features are `inputs` [L], `segments` [L] and `label` [], the number of the class or the number itself, float32.
    """

    input_length: int = 128
    """Ids of a row, special ones and padding included; the ends of longer texts are cut."""

    unit: ClassVar[str] = "example"

    def __post_init__(self) -> None:
        self.row_format  # noqa: B018 (checks its length)

    @cached_property
    def row_format(self) -> RowFormat:
        return Labeled(self.input_length)

    def check_model(self, model: ModelConfig) -> None:
        heads = getattr(model, "heads", None)
        if heads is None:
            raise InputError(
                f"model is a {type(model).__name__}, which Classification cannot train; give it an encoder"
            )
        if "classification" not in heads:
            raise InputError(
                f"model.heads={heads} lacks classification, which Classification trains; set model.heads to "
                "('classification',) and model.num_classes to the number of classes, 1 for numbers"
            )
        if self.input_length > model.max_length:
            raise InputError(
                f"objective.input_length={self.input_length} exceeds model.max_length={model.max_length}; "
                "choose shorter rows or more positions"
            )

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        for role in ("cls", "sep"):
            if getattr(vocabulary, f"{role}_id") is None:
                raise InputError(
                    f"the tokenizer has no {role} token, which Classification needs; "
                    "use WordPiece, ByteLevelBPE or SentencePiece with layout albert or xlm-roberta"
                )
        return super().for_vocabulary(vocabulary)

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        """One raw row to its features; nothing is random.

        >>> objective = Classification(8).for_vocabulary(Vocabulary(20, cls_id=3, sep_id=4, eos_id=4))
        >>> row = objective.corrupt(jax.random.key(0), jnp.array([3, 10, 4, 11, 12, 4, 0, 0, 16416, 0]))
        >>> row["inputs"].tolist(), row["segments"].tolist(), row["label"].item()
        ([3, 10, 4, 11, 12, 4, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0], 2.5)
        """
        if raw.shape != (self.raw_length,):
            raise ValueError(f"raw has shape {raw.shape}; this objective takes rows of {self.raw_length} ids")
        vocabulary, length = self.known_vocabulary, self.input_length
        inputs, (high, low) = raw[:length], raw[length:].astype(jnp.uint32)
        second = jnp.arange(length) > jnp.argmax(inputs == vocabulary.sep_id)
        segments = (second & (inputs != vocabulary.pad_id)).astype(inputs.dtype)
        label = jax.lax.bitcast_convert_type(high << 16 | low, jnp.float32)
        return {"inputs": inputs, "segments": segments, "label": label}

    def logits(
        self, module: nn.Module, params: Any, features: Features, key: Key[Array, ""] | None = None
    ) -> Float[Array, "B C"]:
        """What the head says of each row."""

        def forward(model: nn.Module) -> Float[Array, "B C"]:
            valid, deterministic = features["inputs"] != self.known_vocabulary.pad_id, key is None
            hidden = model.encode(
                features["inputs"], features["segments"], inputs_valid=valid, deterministic=deterministic
            )
            return model.classification_logits(hidden, deterministic=deterministic)

        return apply(module, params, forward, key)

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
        logits, weights, labels = self.logits(module, params, features, key), row_weights(features), features["label"]
        if logits.shape[-1] == 1:
            total = ((logits[:, 0] - labels) ** 2 * weights).sum()
            return total, weights.sum(), {"loss": total}
        losses, _ = cross_entropy(logits, labels.astype(jnp.int32))
        total, correct = (losses * weights).sum(), ((logits.argmax(axis=-1) == labels) * weights).sum()
        return total, weights.sum(), {"loss": total, "accuracy": correct}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Float[Array, "B"]:
        """The likeliest class of each row, by its number, or the number that is predicted."""
        logits = self.logits(module, params, features)
        return logits[:, 0] if logits.shape[-1] == 1 else logits.argmax(axis=-1).astype(jnp.float32)

    def check_labels(self, model: ModelConfig, labels: tuple[str, ...] | None) -> None:
        if labels is None:
            raise InputError("Classification learns labels, which the data has not; give LabeledTexts")
        if max(len(labels), 1) != model.num_classes:
            has = f"{len(labels)} classes" if labels else "numbers for labels, which take one class"
            raise InputError(
                f"model.num_classes={model.num_classes} does not go with the data, which has {has}; "
                f"set model.num_classes to {max(len(labels), 1)}"
            )

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all: the entropy of the classes, or the variance."""
        labels = features["label"]
        return float(np.var(labels)) if model.num_classes == 1 else entropy(labels)
