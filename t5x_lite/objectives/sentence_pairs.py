"""Two segments in a row: does the second follow (BERT), or do they stand in the right order (ALBERT)?"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.errors import InputError
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import Features, Mean, Metrics, Row
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.masked_language_model import (
    InputFormat,
    MaskedLanguageModel,
    apply,
    gather_positions,
    row_weights,
)
from t5x_lite.validation import Positive


@dataclass(frozen=True)
class _SentencePairs(MaskedLanguageModel):
    """The masked language model and a two-way question about the pair, one mean added to the other."""

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
        def forward(model: nn.Module) -> tuple[LazyLogits, Float[Array, "B 2"]]:
            hidden = self.encode(model, features, key)
            tokens = model.masked_lm_scores(gather_positions(hidden, features["positions"]))
            return tokens, model.sentence_pair_logits(hidden)

        scores, pair_logits = apply(module, params, forward, key)
        total, weight, metrics = self.masked_lm_loss(scores, features)
        weights, labels = row_weights(features), features["label"]
        loss, _ = cross_entropy(pair_logits, labels)
        loss, correct = (loss * weights).sum(), ((pair_logits.argmax(axis=-1) == labels) * weights).sum()
        metrics |= {"pair_loss": Mean(loss, weights.sum()), "pair_accuracy": Mean(correct, weights.sum())}
        # total / weight is the mean over tokens plus the mean over rows, both over the whole batch.
        whole = features if whole is None else whole
        tokens_per_row = self.prediction_weights(whole).sum() / jnp.maximum(row_weights(whole).sum(), 1.0)
        return total + loss * tokens_per_row, weight, metrics


@dataclass(frozen=True)
class NextSentencePrediction(_SentencePairs):
    """BERT's objective: masked tokens, and whether B follows A or is from another document (Devlin et al. 2019, 3.1).

    Which of the two is drawn every time a row is seen. Label 0: B follows; 1: it does not.
    """

    @cached_property
    def layout(self) -> Layout:
        return self._format(with_other=True)

    def arrange(self, key: Key[Array, ""], row: Row) -> Features:
        """`[CLS] A [SEP] B [SEP]`, or with the column `other` in the place of B."""
        vocabulary, length = self.known_vocabulary, self.input_length
        ids, other = row["ids"], row["other"]
        index = jnp.arange(length)
        behind_a = jnp.argmax(ids == vocabulary.sep_id) + 1
        position, size = index - behind_a, (other != vocabulary.pad_id).sum()
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
        vocabulary = self.known_vocabulary
        ids = row["ids"]
        index, separators = jnp.arange(self.input_length), ids == vocabulary.sep_id
        first = jnp.argmax(separators)
        second = jnp.argmax(separators & (index > first))
        behind_b = second - first  # where B ends once it stands in front
        # [CLS], B from behind the first separator, that separator, A, and the rest as it was.
        source = jnp.where(index < behind_b, index + first, jnp.where(index == behind_b, first, index - behind_b))
        source = jnp.where((index == 0) | (index >= second), index, source)
        swapped = jax.random.bernoulli(key)
        inputs = jnp.where(swapped, ids[source], ids)
        return {"inputs": inputs, "segments": self.segments_of(inputs), "label": swapped.astype(jnp.int32)}

    def choose(self, key: Key[Array, ""], ids: Int[Array, "L"]) -> Bool[Array, "L"]:
        if self.longest_ngram == 1:
            return super().choose(key, ids)
        candidates = ~masking.is_special(ids, self.known_vocabulary)
        starts = masking.word_starts(ids, candidates, self.known_vocabulary)
        shares = masking.harmonic_shares(self.longest_ngram)
        return masking.choose_spans(key, candidates, starts, self._count(ids), shares).number >= 0
