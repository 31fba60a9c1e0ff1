"""A masked language model with a binary task on two segments: next sentence (BERT), sentence order (ALBERT)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.errors import InputError
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Mean, Row, row_weights
from t5x_lite.objectives.losses import weighted_loss
from t5x_lite.objectives.masked_language_model import InputFormat, MaskedLanguageModel
from t5x_lite.validation import Positive


@dataclass(frozen=True)
class _SentencePairs(MaskedLanguageModel):
    """The masked language model and a binary classification of the pair, one mean added to the other."""

    input_format: InputFormat = "segment-pair"
    """Which pairs: segment-pair (as many sentences as fit) or sentence-pair (one each)."""

    heads: ClassVar[tuple[str, ...]] = ("masked_lm", "sentence_pair")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.is_pair:
            raise InputError(
                f"input_format={self.input_format!r} has no pairs, which {type(self).__name__} asks about; "
                "choose segment-pair or sentence-pair"
            )

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> tuple[LazyLogits, Float[Array, "B 2"]]:
        hidden = self.encode(model, features, key)
        return self.scores_of(model, hidden, features), model.sentence_pair_logits(hidden)

    def loss_of(self, outputs: tuple[LazyLogits, Array], features: Features, whole: Features) -> Loss:
        total, weight, metrics = super().loss_of(outputs[0], features, whole)
        loss, rows, figures = weighted_loss(outputs[1], features["label"], row_weights(features))
        metrics |= {f"pair_{name}": Mean(value, rows) for name, value in figures.items()}
        # total / weight is the mean over tokens plus the mean over rows, both over the whole batch.
        return total + loss * self.predictions_per(row_weights(whole), whole), weight, metrics


@dataclass(frozen=True)
class NextSentencePrediction(_SentencePairs):
    """BERT's objective: masked tokens, and whether B follows A or is from another document (Devlin et al. 2019, 3.1).

    Which of the two is drawn every time a row is seen. Label 0: B follows; 1: it does not.
    """

    with_other: ClassVar[bool] = True

    def arrange(self, key: Key[Array, ""], row: Row) -> Features:
        """`[CLS] A [SEP] B [SEP]`, or with the column `other` instead of B."""
        vocabulary, length = self.known_vocabulary, self.input_length
        ids, other = row["ids"], row["other"]
        index = jnp.arange(length)
        position, size = index - jnp.argmax(ids == vocabulary.sep_id) - 1, (other != vocabulary.pad_id).sum()
        stranger = jnp.where(position == size, vocabulary.sep_id, vocabulary.pad_id)
        stranger = jnp.where(position < size, other[position.clip(0, other.shape[0] - 1)], stranger)
        is_other = jax.random.bernoulli(key)
        inputs = jnp.where(is_other & (position >= 0), stranger, ids).astype(ids.dtype)
        return {"inputs": inputs, "segments": self.segments_of(inputs), "label": is_other.astype(jnp.int32)}


@dataclass(frozen=True)
class SentenceOrderPrediction(_SentencePairs):
    """ALBERT's objective: masked n-grams, and whether the two segments were swapped (Lan et al. 2020, section 3.1).

    Half of the rows are swapped, drawn every time a row is seen. Label 0: in order; 1: swapped.
    """

    longest_ngram: Positive = 3
    """Words hidden together: n of them with a probability in proportion to 1 / n; 1 hides tokens one by one."""

    def arrange(self, key: Key[Array, ""], row: Row) -> Features:
        """`[CLS] A [SEP] B [SEP]` or `[CLS] B [SEP] A [SEP]`."""
        ids = row["ids"]
        is_separator = ids == self.known_vocabulary.sep_id
        first = jnp.argmax(is_separator)
        second = jnp.argmax(is_separator.at[first].set(False))
        swapped = jax.random.bernoulli(key)
        inputs = jnp.where(swapped, masking.swap_segments(ids, first, second), ids)
        return {"inputs": inputs, "segments": self.segments_of(inputs), "label": swapped.astype(jnp.int32)}

    def choose(self, key: Key[Array, ""], ids: Int[Array, "L"]) -> Bool[Array, "L"]:
        if self.longest_ngram == 1:
            return super().choose(key, ids)
        shares = masking.harmonic_shares(self.longest_ngram)
        return self.choose_spans(key, ids, shares).number >= 0
