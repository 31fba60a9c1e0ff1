"""The masked language model: hide some tokens of a row and ask for them (Devlin et al. 2019, section 3.1).

Dynamic masking (Liu et al. 2019, section 4.1): a row is masked afresh every time it is seen.
"""

from collections.abc import Callable
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
from t5x_lite.objectives.base import Features, Metrics, Objective, Row
from t5x_lite.objectives.vocabulary_loss import vocabulary_loss
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Density, NonNegative, Range, Share

InputFormat = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]
"""The four of Liu et al. 2019, section 4.2."""


RowLength = Annotated[int, Range(ge=8)]


@dataclass(frozen=True)
class MaskedLanguageModel(Objective):
    """Hide 15 % of a row's tokens and predict them from the rest."""

    input_length: RowLength = 512
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
        return self._format(with_other=False)

    def _format(self, *, with_other: bool) -> Layout:
        if self.is_pair:
            return Pairs(self.input_length, self.input_format.removesuffix("-pair"), with_other)
        return Sentences(self.input_length, across_documents=self.input_format == "full-sentences")

    @property
    def is_pair(self) -> bool:
        """Whether rows hold two segments, each closed by a separator."""
        return self.input_format.endswith("-pair")

    @property
    def num_predictions(self) -> int:
        """Places for predictions in a row; one that is not full leaves some of them empty."""
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
        if self.input_length > model.max_length:
            raise InputError(
                f"objective.input_length={self.input_length} exceeds model.max_length={model.max_length}; "
                "choose shorter rows or more positions"
            )

    def for_vocabulary(self, vocabulary: Vocabulary) -> Self:
        for role in ("mask", "cls", "sep"):
            if getattr(vocabulary, f"{role}_id") is None:
                raise InputError(
                    f"the tokenizer has no {role} token, which {type(self).__name__} needs; "
                    "use WordPiece, ByteLevelBPE or SentencePiece with layout albert or xlm-roberta"
                )
        if self.whole_words and not vocabulary.marks_words:
            raise InputError("whole_words=True needs a tokenizer that marks words; use another one, or False")
        return super().for_vocabulary(vocabulary)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to `inputs` [L], `segments` [L], `positions` [P] and `targets` [P].

        `targets` holds what stood at `positions`; in positions that are not used it holds padding.

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
        """0 up to the first separator of a pair, 1 behind it; 0 in rows of one segment, and for padding."""
        vocabulary = self.known_vocabulary
        if not self.is_pair:
            return jnp.zeros_like(ids)
        second = jnp.arange(ids.shape[0]) > jnp.argmax(ids == vocabulary.sep_id)
        return (second & (ids != vocabulary.pad_id)).astype(ids.dtype)

    def mask(self, key: Key[Array, ""], ids: Int[Array, "L"]) -> Features:
        """`inputs`, `positions` and `targets` of an arranged row."""
        choose_key, hide_key = jax.random.split(key)
        chosen = self.choose(choose_key, ids)
        hidden = self._hide(hide_key, ids, chosen)
        return {"inputs": hidden} | self._questions(ids, chosen)

    def choose(self, key: Key[Array, ""], ids: Int[Array, "L"]) -> Bool[Array, "L"]:
        """Which positions are predicted."""
        vocabulary = self.known_vocabulary
        candidates = ~masking.is_special(ids, vocabulary)
        if self.whole_words:
            starts = masking.word_starts(ids, candidates, vocabulary)
            return masking.choose_words(key, candidates, starts, self._count(ids))
        return masking.choose_tokens(key, candidates, self._count(ids))

    def _count(self, ids: Int[Array, "L"]) -> Int[Array, ""]:
        counts = masking.mask_counts(self.input_length, self.mask_rate)
        return jnp.asarray(counts)[(ids != self.known_vocabulary.pad_id).sum()]

    def _hide(
        self,
        key: Key[Array, ""],
        ids: Int[Array, "L"],
        chosen: Bool[Array, "L"],
        group: Int[Array, "L"] | None = None,
    ) -> Int[Array, "L"]:
        shares = {"mask_share": self.mask_share, "random_share": self.random_share}
        return masking.hide(key, ids, chosen, self.known_vocabulary, **shares, group=group)

    def _questions(self, ids: Int[Array, "L"], chosen: Bool[Array, "L"]) -> Features:
        positions, used = masking.chosen_positions(chosen, self.num_predictions)
        return {"positions": positions, "targets": jnp.where(used, ids[positions], self.known_vocabulary.pad_id)}

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
        scores = apply(module, params, lambda model: self.token_scores(model, features, key), key)
        return self.masked_lm_loss(scores, features)

    def language_model(self, model: nn.Module) -> nn.Module:
        """The part of the model that answers for the hidden tokens."""
        return model

    def token_scores(self, model: nn.Module, features: Features, key: Key[Array, ""] | None) -> LazyLogits:
        """What the language model says at the positions asked for; only these meet the vocabulary."""
        model = self.language_model(model)
        return model.masked_lm_scores(gather_positions(self.encode(model, features, key), features["positions"]))

    def masked_lm_loss(
        self, scores: LazyLogits, features: Features
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        """(sum, weight, metrics) over the tokens asked for; `loss` and `accuracy` among the metrics."""
        return vocabulary_loss(scores, features["targets"], self.prediction_weights(features), least_chunks=1)

    def prediction_weights(self, features: Features) -> Float[Array, "B P"]:
        """1 for each token asked for in a valid row, 0 for places not used."""
        weights = (features["targets"] != self.known_vocabulary.pad_id).astype(jnp.float32)
        return weights * row_weights(features)[:, None]

    def token_weights(self, features: Features) -> Float[Array, "B L"]:
        """1 for each token of a valid row, 0 for padding."""
        valid = features["inputs"] != self.known_vocabulary.pad_id
        return valid.astype(jnp.float32) * row_weights(features)[:, None]

    def encode(
        self, model: nn.Module, features: Features, key: Key[Array, ""] | None, inputs: Int[Array, "B L"] | None = None
    ) -> Float[Array, "B L D"]:
        """The encoder's output for the features' inputs, or for other inputs of the same rows."""
        inputs = features["inputs"] if inputs is None else inputs
        valid = features["inputs"] != self.known_vocabulary.pad_id
        return model.hidden_states(inputs, features["segments"], inputs_valid=valid, deterministic=key is None)

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B P"]:
        """The most likely token at each position asked for; padding in places not used."""
        logits = apply(module, params, lambda model: self.token_scores(model, features, None).dense(), None)
        used = features["targets"] != self.known_vocabulary.pad_id
        return jnp.where(used, logits.argmax(axis=-1), self.known_vocabulary.pad_id)


def gather_positions(hidden: Float[Array, "B L D"], positions: Int[Array, "B P"]) -> Float[Array, "B P D"]:
    """The vectors at some positions of each row, so that only they meet the vocabulary."""
    return jnp.take_along_axis(hidden, positions[..., None], axis=1)


def row_weights(features: Features) -> Float[Array, "B"]:
    """1 for each row, 0 for those that fill up a batch."""
    valid = features.get("valid")
    return jnp.ones(features["inputs"].shape[0]) if valid is None else valid.astype(jnp.float32)


def apply(module: nn.Module, params: Any, forward: Callable, key: Key[Array, ""] | None) -> Any:
    """`forward(module)` with these parameters, dropout driven by `key` if there is one."""
    return module.apply({"params": params}, method=forward, rngs=None if key is None else {"dropout": key})
