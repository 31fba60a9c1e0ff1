"""What all objectives have in common that give a text and ask for another one."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, Key

from t5x_lite.data.tasks.text_to_text import TextPairs, TooLong
from t5x_lite.decoding import greedy_decode
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Objective, Row
from t5x_lite.objectives.losses import inputs_for, not_padding, segments_of, text_to_text_loss
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import NonNegativeFloat, Range, Rate

SpanLength = Annotated[float, Range(ge=1, remedy="choose e.g. 3.0")]


@dataclass(frozen=True)
class TextToText(Objective):
    """Trains any model that writes text: an encoder-decoder, or a decoder, which reads both texts as one sequence.

    Features are `inputs` [B M] and `targets` [B L], each closed by EOS, padding behind it; and for packed rows
    `inputs_segments` [B M] and `decoder_segments` [B L].
    """

    input_length: int = 512
    """Ids of the input, EOS included."""
    label_smoothing: Rate = field(default=0.0, kw_only=True)
    """Share of the target distribution spread evenly over the vocabulary."""
    z_loss: NonNegativeFloat = field(default=0.0, kw_only=True)
    """Weight of the squared log of the softmax's normaliser (1e-4 in T5 v1.1)."""

    asks_for_text: ClassVar[bool] = True
    targets_are_text: ClassVar[bool] = True
    shortest: ClassVar[int] = 4
    """The least `input_length`."""
    pads_inputs: ClassVar[bool] = True
    """Whether there may be padding behind the inputs; otherwise every row fills them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_length < self.shortest:
            raise InputError(f"input_length={self.input_length} is too short for a row; choose {self.shortest} or more")

    @property
    @abstractmethod
    def target_length(self) -> int:
        """Ids of the target, EOS included."""

    def check_model(self, model: ModelConfig) -> None:
        name, most = type(self).__name__, getattr(model, "max_length", None)
        is_decoder = model.architecture == "decoder"
        if not is_decoder and not hasattr(model, "num_decoder_layers"):
            raise InputError(
                f"model is a {type(model).__name__}, an encoder; {name} trains an encoder-decoder or a decoder"
            )
        # One EOS stands between the two in a decoder's row.
        both, either = self.input_length - 1 + self.target_length, max(self.input_length, self.target_length)
        if most is not None and (both if is_decoder else either) > most:
            together = f", {both} together," if is_decoder else ""
            raise InputError(
                f"objective.input_length={self.input_length} with targets of {self.target_length} ids{together} exceeds"
                f" model.max_length={most}; choose shorter rows or more positions"
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
        return text_to_text_loss(
            module,
            params,
            features["inputs"],
            features["targets"],
            key,
            pad_id=self.known_vocabulary.pad_id,
            eos_id=self.known_vocabulary.eos_id,
            rows_valid=features.get("valid"),
            inputs_valid=self._inputs_valid(features),
            inputs_segments=features.get("inputs_segments"),
            decoder_segments=features.get("decoder_segments"),
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
        )

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        """What the model writes for each input, greedily."""
        pad_id, eos_id = self.known_vocabulary.pad_id, self.known_vocabulary.eos_id
        inputs, inputs_valid = inputs_for(module, features["inputs"], self._inputs_valid(features))
        return greedy_decode(
            module,
            params,
            inputs,
            max_length=features["targets"].shape[1],
            inputs_valid=inputs_valid,
            start_id=module.config.decoder_start_id(pad_id=pad_id, eos_id=eos_id),
            eos_id=eos_id,
            pad_id=pad_id,
        )

    def _inputs_valid(self, features: Features) -> Bool[Array, "B M"] | None:
        """Where the inputs are not padding; None where the features need no mask for it."""
        if not self.pads_inputs or "inputs_segments" in features:
            return None
        return not_padding(features["inputs"], self.known_vocabulary.pad_id, self.known_vocabulary.eos_id)


def closed(ids: Int[Array, "R"], vocabulary: Vocabulary) -> Int[Array, "R1"]:
    """The ids and an EOS."""
    return jnp.pad(ids, (0, 1), constant_values=vocabulary.eos_id)


def kept_ids(raw: Int[Array, "R"], kept: Bool[Array, "R"], vocabulary: Vocabulary, length: int) -> Int[Array, "length"]:
    """Those ids that are kept, in order, closed by EOS and padded; cut where they are more than `length - 1`.

    >>> vocabulary = Vocabulary(size=20, pad_id=0, eos_id=1)
    >>> kept_ids(jnp.array([7, 8, 9]), jnp.array([True, False, True]), vocabulary, 5).tolist()
    [7, 9, 1, 0, 0]
    """
    row = jnp.full(length, vocabulary.pad_id, raw.dtype)
    row = row.at[jnp.where(kept, jnp.cumsum(kept) - 1, length)].set(raw, mode="drop")
    return row.at[jnp.minimum(kept.sum(), length - 1)].set(vocabulary.eos_id)


@dataclass(frozen=True)
class SequenceToSequence(TextToText):
    """The likelihood of each target given its source, teacher forced. Pairs that share a row do not see each other."""

    input_length: int = 512
    """Ids of the sources of a row, an EOS after each included."""
    target_length: Annotated[int, Range(ge=2)] = 512
    """Ids of the targets of a row, an EOS after each included."""
    packed: bool = True
    """Several pairs in a row, as many as fit; else one. Decoders take one."""
    too_long: TooLong = "error"
    """What becomes of a pair with a side over its length: error, skip or cut."""

    shortest: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.layout  # noqa: B018 (checks its fields)

    @property
    def layout(self) -> TextPairs:
        return TextPairs(self.input_length, self.target_length, packed=self.packed, too_long=self.too_long)

    def check_model(self, model: ModelConfig) -> None:
        super().check_model(model)
        if self.packed and model.architecture == "decoder":
            raise InputError(
                f"objective.packed=True does not go with a {type(model).__name__}, which reads inputs and targets as"
                " one sequence; set objective.packed to False"
            )

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`inputs` [input_length] and `targets` [target_length] as they are; of packed rows also their segments."""
        self.check_row(row)
        inputs, targets = row["inputs"], row["targets"]
        features = {"inputs": inputs, "targets": targets}
        if not self.packed:
            return features
        pad_id, eos_id = self.known_vocabulary.pad_id, self.known_vocabulary.eos_id
        segments = {"inputs_segments": inputs, "decoder_segments": targets}
        return features | {name: segments_of(ids, pad_id, eos_id) for name, ids in segments.items()}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        """What the model writes for each input, greedily; of packed rows for the first one of each."""
        return super().predict(module, params, self._first_pairs(features))

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        """The first pair of each row, and what the model writes."""
        return super().samples(module, params, self._first_pairs(features))

    def _first_pairs(self, features: Features) -> Features:
        """Rows of one pair each."""
        if "inputs_segments" not in features:
            return features
        segments = {"inputs": "inputs_segments", "targets": "decoder_segments"}
        pad_id = self.known_vocabulary.pad_id
        return {side: jnp.where(features[of] == 1, features[side], pad_id) for side, of in segments.items()}
