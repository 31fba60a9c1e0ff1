"""Objectives whose inputs and targets are both texts."""

import bisect
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Int, Key

from t5x_lite.data.layouts.text import Stream
from t5x_lite.data.tasks.text_to_text import TextPairs, TooLong
from t5x_lite.decoding import Greedy, decode
from t5x_lite.errors import InputError
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Objective, Row, row_weights
from t5x_lite.objectives.losses import not_padding, segments_of, shift_right
from t5x_lite.objectives.vocabulary_loss import vocabulary_loss
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import NonNegativeFloat, Range, Rate

SpanLength = Annotated[float, Range(ge=1, remedy="choose e.g. 3.0")]


@dataclass(frozen=True)
class TextToText(Objective):
    """Trains any model that writes text: an encoder-decoder, or a decoder, which reads both texts as one sequence.

    Features are `inputs` [B M] and `targets` [B L], each closed by EOS and padded; and for packed rows
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
    """Whether inputs may be padded; otherwise every row fills them."""

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
        # One EOS separates the two in a decoder's row.
        both, either = self.input_length - 1 + self.target_length, max(self.input_length, self.target_length)
        if most is not None and (both if is_decoder else either) > most:
            together = f", {both} together," if is_decoder else ""
            raise InputError(
                f"objective.input_length={self.input_length} with targets of {self.target_length} ids{together} exceeds"
                f" model.max_length={most}; choose shorter rows or more positions"
            )

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> LazyLogits:
        targets, segments = features["targets"], features.get("decoder_segments")
        inputs, valid = self._model_inputs(model, features)
        packed = {name: features[name] for name in ("inputs_segments", "decoder_segments") if name in features}
        before = shift_right(targets, self._start_id(model), segments)
        return model.scores(inputs, before, inputs_valid=valid, **packed, deterministic=key is None)

    def loss_of(self, outputs: LazyLogits, features: Features, whole: Features) -> Loss:
        targets = features["targets"]
        weights = self._not_padding(targets) * row_weights(features)[:, None]
        return vocabulary_loss(outputs, targets, weights, label_smoothing=self.label_smoothing, z_loss=self.z_loss)

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        """What the model writes for each input, greedily."""
        inputs, inputs_valid = self._model_inputs(module, features)
        decoded = decode(
            module,
            params,
            inputs,
            method=Greedy(),
            start_ids=jnp.full(len(inputs), self._start_id(module), jnp.int32),
            max_length=features["targets"].shape[1],
            inputs_valid=inputs_valid,
            eos_id=self.known_vocabulary.eos_id,
            pad_id=self.known_vocabulary.pad_id,
        )
        return decoded.ids[:, 0]

    def _model_inputs(
        self, model: nn.Module, features: Features
    ) -> tuple[Int[Array, "B _"], Bool[Array, "B _"] | None]:
        """(inputs, where they are not padding) as the model takes them; None where no mask is needed.

        A decoder reads the EOS of its inputs as its first decoder input, so for one it is left out here.
        """
        inputs, valid = features["inputs"], None
        if self.pads_inputs and "inputs_segments" not in features:
            valid = self._not_padding(inputs)
        if model.config.architecture != "decoder":
            return inputs, valid
        if valid is not None:
            ids_left = jnp.cumsum(valid[:, ::-1], axis=1)[:, ::-1]
            valid = (valid & (ids_left > 1))[:, :-1]
        return inputs[:, :-1], valid

    def _start_id(self, model: nn.Module) -> int:
        return model.config.decoder_start_id(pad_id=self.known_vocabulary.pad_id, eos_id=self.known_vocabulary.eos_id)

    def _not_padding(self, ids: Int[Array, "B L"]) -> Bool[Array, "B L"]:
        return not_padding(ids, self.known_vocabulary.pad_id, self.known_vocabulary.eos_id)


@dataclass(frozen=True)
class StreamDenoising(TextToText):
    """Base of objectives that make both texts of one row of a stream of text."""

    @property
    def raw_length(self) -> int:
        """Ids of a row: the most whose input has at most `input_length` ids."""
        return self._longest

    @cached_property
    def _longest(self) -> int:
        return bisect.bisect_right(range(2, 1 << 40), self.input_length, key=self.input_size) + 1

    def input_size(self, raw_length: int) -> int:
        """Ids of the input of a row, EOS included; it never gets smaller as the row grows."""
        return raw_length + 1

    @property
    def target_length(self) -> int:
        return self.input_length

    @property
    def layout(self) -> Stream:
        return Stream(self.raw_length)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`raw_length` ids to `inputs` [input_length] and `targets` [target_length]."""
        self.check_row(row)
        inputs, targets = self.sides(key, row["ids"])
        return {"inputs": inputs, "targets": targets}

    @abstractmethod
    def sides(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> tuple[Int[Array, "I"], Int[Array, "T"]]:
        """(inputs, targets) of a row, each closed by EOS and padded."""


def closed(ids: Int[Array, "R"], vocabulary: Vocabulary) -> Int[Array, "R1"]:
    """The ids and an EOS."""
    return jnp.pad(ids, (0, 1), constant_values=vocabulary.eos_id)


def kept_ids(
    raw: Int[Array, "R"], kept: Bool[Array, "R"], end_id: int, pad_id: int, length: int
) -> Int[Array, "length"]:
    """Those ids that are kept, in order, closed by `end_id` and padded; cut where they are more than `length - 1`.

    >>> kept_ids(jnp.array([7, 8, 9]), jnp.array([True, False, True]), 1, 0, 5).tolist()
    [7, 9, 1, 0, 0]
    """
    row = jnp.full(length, pad_id, raw.dtype)
    row = row.at[jnp.where(kept, jnp.cumsum(kept) - 1, length)].set(raw, mode="drop")
    return row.at[jnp.minimum(kept.sum(), length - 1)].set(end_id)


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
        if self.packed and not model.packs_rows:
            raise InputError(
                f"objective.packed=True does not go with a {type(model).__name__}, whose state goes on from one text of"
                " a row to the next; set objective.packed to False"
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
        if "inputs_segments" not in features:
            return features
        segments = {"inputs": "inputs_segments", "targets": "decoder_segments"}
        pad_id = self.known_vocabulary.pad_id
        return {side: jnp.where(features[of] == 1, features[side], pad_id) for side, of in segments.items()}
