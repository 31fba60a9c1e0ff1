"""The masked language model: some tokens of a row are hidden and predicted (Devlin et al. 2019, section 3.1).

With dynamic masking (Liu et al. 2019, section 4.1), which masks a row afresh every time it is seen.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.segment_pairs import Pairs
from t5x_lite.data.layouts.text import Sentences
from t5x_lite.errors import InputError
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Objective, Row, check_length, row_weights
from t5x_lite.objectives.vocabulary_loss import vocabulary_loss
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Density, NonNegative, Range, Share

InputFormat = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]
"""The four of Liu et al. 2019, section 4.2."""


@dataclass(frozen=True)
class MaskedLanguageModel(Objective):
    """Hide 15 % of a row's tokens and predict them from the rest."""

    input_length: Annotated[int, Range(ge=8)] = 512
    """Ids of a row, special ones and padding included."""
    input_format: InputFormat = "full-sentences"
    """How text fills a row: full-sentences, doc-sentences, segment-pair or sentence-pair."""
    mask_rate: Density = 0.15
    """Share of a row's ids, padding apart, that is predicted: exactly round(mask_rate * ids) of them."""
    mask_share: Share = 0.8
    """Share of the predicted tokens that the model sees as the mask token ..."""
    random_share: Share = 0.1
    """... and as another token, drawn at random; the rest it sees as they are."""
    whole_words: bool = False
    """Hide words, not tokens; then fewer are predicted where no whole word fits."""
    static_masks: NonNegative = 0
    """Masked copies of a row to choose from, as BERT's data had ten; 0 masks afresh every time."""

    heads: ClassVar[tuple[str, ...]] = ("masked_lm",)
    """What the model must have."""
    roles: ClassVar[tuple[str, ...]] = ("mask", "cls", "sep")
    with_other: ClassVar[bool] = False
    """Whether rows of pairs have the column `other`, a segment of another document."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_share + self.random_share > 1.0:
            raise InputError(
                f"mask_share={self.mask_share} and random_share={self.random_share} exceed 1 together; "
                "choose e.g. 0.8 and 0.1"
            )
        self.layout  # noqa: B018 (checks its lengths)

    @cached_property
    def layout(self) -> Layout:
        if self.is_pair:
            return Pairs(self.input_length, self.input_format.removesuffix("-pair"), self.with_other)
        return Sentences(self.input_length, across_documents=self.input_format == "full-sentences")

    @property
    def is_pair(self) -> bool:
        """Whether rows have two segments, each closed by a separator."""
        return self.input_format.endswith("-pair")

    @property
    def num_predictions(self) -> int:
        """Predicted positions of a full row; a shorter one leaves some of them unused."""
        return int(masking.mask_counts(self.input_length, self.mask_rate)[-1])

    def check_model(self, model: ModelConfig) -> None:
        name, model_heads = type(self).__name__, getattr(model, "heads", None)
        if model_heads is None or model.architecture not in ("encoder", None):
            raise InputError(f"model is a {type(model).__name__}, which {name} cannot train; give it an encoder")
        if missing := [head for head in self.heads if head not in model_heads]:
            raise InputError(
                f"model.heads={model_heads} lacks {', '.join(missing)}, which {name} trains; "
                f"set model.heads to {tuple(dict.fromkeys((*model_heads, *missing)))}"
            )
        check_length(self.input_length, model)

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        if self.whole_words and not vocabulary.marks_words:
            raise InputError("whole_words=True needs a tokenizer that marks words; use another one, or False")
        return super().for_vocabulary(vocabulary)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to `inputs` [L], `segments` [L], `positions` [P] and `targets` [P].

        `targets` are the original ids at `positions`, and padding at unused ones.

        >>> vocabulary = Vocabulary(20, cls_id=3, sep_id=4, mask_id=5, eos_id=4)
        >>> objective = MaskedLanguageModel(8, mask_rate=0.3).for_vocabulary(vocabulary)
        >>> row = objective.corrupt(jax.random.key(1), {"ids": jnp.array([3, 10, 11, 12, 13, 14, 4, 0])})
        >>> {name: value.tolist() for name, value in row.items() if name != "segments"}
        {'inputs': [3, 10, 5, 5, 13, 14, 4, 0], 'positions': [2, 3], 'targets': [11, 12]}
        """
        self.check_row(row)
        if self.static_masks:
            content = masking.content_key(jnp.concatenate(list(row.values())))
            key = jax.random.fold_in(content, jax.random.randint(key, (), 0, self.static_masks))
        arrange_key, mask_key = jax.random.split(key)
        features = self.arrange(arrange_key, row)
        return features | self.mask(mask_key, features["inputs"])

    def arrange(self, key: Key[Array, ""], row: Row) -> Features:
        """The row as the model would see it if nothing were hidden."""
        return {"inputs": row["ids"], "segments": self.segments_of(row["ids"])}

    def segments_of(self, ids: Int[Array, "L"]) -> Int[Array, "L"]:
        """Those of `masking.segments_of` in rows of pairs, 0 in others."""
        vocabulary = self.known_vocabulary
        return masking.segments_of(ids, vocabulary.sep_id, vocabulary.pad_id) if self.is_pair else jnp.zeros_like(ids)

    def mask(self, key: Key[Array, ""], ids: Int[Array, "L"]) -> Features:
        """`inputs`, `positions` and `targets` of an arranged row."""
        choose_key, hide_key = jax.random.split(key)
        return self.hide(hide_key, ids, self.choose(choose_key, ids))

    def choose(self, key: Key[Array, ""], ids: Int[Array, "L"]) -> Bool[Array, "L"]:
        """Which positions are predicted."""
        candidates, starts, count = self._candidates(ids)
        if self.whole_words:
            return masking.choose_words(key, candidates, starts, count)
        return masking.choose_tokens(key, candidates, count)

    def choose_spans(self, key: Key[Array, ""], ids: Int[Array, "L"], shares: tuple[float, ...]) -> masking.Spans:
        """Spans of words to predict, whose lengths have these probabilities."""
        return masking.choose_spans(key, *self._candidates(ids), shares)

    def _candidates(self, ids: Int[Array, "L"]) -> tuple[Bool[Array, "L"], Bool[Array, "L"], Int[Array, ""]]:
        """(what may be predicted, the first token of each word, how many are predicted)."""
        vocabulary = self.known_vocabulary
        candidates = ~masking.is_special(ids, vocabulary)
        counts = jnp.asarray(masking.mask_counts(self.input_length, self.mask_rate))
        starts = masking.word_starts(ids, candidates, vocabulary)
        return candidates, starts, counts[(ids != vocabulary.pad_id).sum()]

    def hide(
        self, key: Key[Array, ""], ids: Int[Array, "L"], chosen: Bool[Array, "L"], group: Int[Array, "L"] | None = None
    ) -> Features:
        """The features of a row whose chosen positions are predicted; `group` as in `masking.hide`."""
        vocabulary, shares = self.known_vocabulary, (self.mask_share, self.random_share)
        inputs = masking.hide(key, ids, chosen, vocabulary, *shares, group=group)
        size = self.num_predictions
        positions = jnp.nonzero(chosen, size=size, fill_value=0)[0]
        targets = jnp.where(jnp.arange(size) < chosen.sum(), ids[positions], vocabulary.pad_id)
        return {"inputs": inputs, "positions": positions, "targets": targets}

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> Any:
        return self.token_scores(model, features, key)

    def loss_of(self, outputs: Any, features: Features, whole: Features) -> Loss:
        return vocabulary_loss(outputs, features["targets"], self.prediction_weights(features), least_chunks=1)

    def token_scores(self, model: nn.Module, features: Features, key: DropoutKey) -> LazyLogits:
        """The scores at the predicted positions alone."""
        return self.scores_of(model, self.encode(model, features, key), features)

    def scores_of(self, model: nn.Module, hidden: Float[Array, "B L D"], features: Features) -> LazyLogits:
        """`token_scores`, given what `encode` returns."""
        return model.masked_lm_scores(gather_positions(hidden, features["positions"]))

    def prediction_weights(self, features: Features) -> Float[Array, "B P"]:
        """1 for each predicted token of a valid row, 0 for unused positions."""
        weights = (features["targets"] != self.known_vocabulary.pad_id).astype(jnp.float32)
        return weights * row_weights(features)[:, None]

    def token_weights(self, features: Features) -> Float[Array, "B L"]:
        """1 for each token of a valid row, 0 for padding."""
        valid = features["inputs"] != self.known_vocabulary.pad_id
        return valid.astype(jnp.float32) * row_weights(features)[:, None]

    def predictions_per(self, weights: Float[Array, "*_"], whole: Features) -> Float[Array, ""]:
        """Predicted tokens of the whole batch per item, such as a row, of these weights: the factor with which a sum
        over items becomes a mean when it is divided by the weight of the loss."""
        return self.prediction_weights(whole).sum() / jnp.maximum(weights.sum(), 1.0)

    def encode(
        self, model: nn.Module, features: Features, key: DropoutKey, inputs: Int[Array, "B L"] | None = None
    ) -> Float[Array, "B L D"]:
        """The encoder's output for the features' inputs, or for other inputs of the same rows."""
        inputs = features["inputs"] if inputs is None else inputs
        valid = features["inputs"] != self.known_vocabulary.pad_id
        return model.hidden_states(inputs, features["segments"], inputs_valid=valid, deterministic=key is None)

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B P"]:
        """The most likely token at each predicted position; padding in unused ones."""
        logits = module.apply({"params": params}, method=lambda model: self.token_scores(model, features, None).dense())
        used = features["targets"] != self.known_vocabulary.pad_id
        return jnp.where(used, logits.argmax(axis=-1), self.known_vocabulary.pad_id)


def gather_positions(hidden: Float[Array, "B L D"], positions: Int[Array, "B P"]) -> Float[Array, "B P D"]:
    """The vectors at some positions of each row, so that logits are computed for them alone."""
    return jnp.take_along_axis(hidden, positions[..., None], axis=1)
