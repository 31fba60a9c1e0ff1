"""XLNet's objective: tokens are predicted in a random order, from those before them in it (Yang et al. 2019)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Int, Key

from t5x_lite.data.layouts.text import OverlappingStream
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.models.xlnet import XLNetConfig
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import MEMORY, DropoutKey, Features, Loss, Objective, Row, row_weights
from t5x_lite.objectives.vocabulary_loss import vocabulary_loss
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)
from t5x_lite.validation import NonNegative, Positive, Range


@dataclass(frozen=True)
class PermutationLanguageModel(Objective):
    """Predicts spans of a row in a random order, each token from the text that is given and the tokens before it.

    A row begins with `reused_length` tokens that go on from the row before, and whose layers the next row remembers.
    Two segments follow, the second of which is a random one half of the time: `reused A [SEP] B [SEP] [CLS]`.
    """

    input_length: Annotated[int, Range(ge=8)] = 512
    """Ids that the model reads at once, special ones included."""
    reused_length: Positive = 256
    """Of these, the ids that the row before ended with."""
    memory_length: NonNegative = 384
    """Tokens before a row that its layers see; 0: none."""
    prediction_rate: Annotated[float, Range(gt=0, le=1, remedy="choose e.g. 1/6")] = 1 / 6
    """1 / K: the share of the tokens that is predicted (section 2.3, partial prediction)."""
    longest_span: Positive = 5
    """Words of a predicted span, at most (section 3.1)."""
    input_format: Literal["segment-pair", "stream"] = "segment-pair"
    """Two segments after the reused tokens, or running text alone, all of which goes on in the next row."""
    both_ways: bool = True
    """Half of the rows of a batch read the text from its end to its beginning (section 3.1)."""

    asks_for_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_pair and self.input_length < self.reused_length + 5:
            raise InputError(
                f"reused_length={self.reused_length} leaves no room for two segments and three special ids in "
                f"input_length={self.input_length}; choose {max(self.input_length // 2, 1)}, or input_format='stream'"
            )

    @property
    def roles(self) -> tuple[str, ...]:
        return ("cls", "sep") if self.is_pair else ()

    @property
    def is_pair(self) -> bool:
        return self.input_format == "segment-pair"

    @cached_property
    def layout(self) -> OverlappingStream:
        length = self.input_length - 3 * self.is_pair
        step = self.reused_length if self.is_pair else length
        return OverlappingStream(length, step, with_other=self.is_pair, both_ways=self.both_ways)

    @property
    def num_predictions(self) -> int:
        """Predicted tokens of a row."""
        return max(1, int(self.input_length * self.prediction_rate))

    def check_model(self, model: ModelConfig) -> None:
        if not isinstance(model, XLNetConfig):
            raise InputError(
                f"model is a {type(model).__name__}, which has no stream of queries; PermutationLanguageModel trains "
                "an XLNetConfig"
            )
        if "permutation_lm" not in model.heads:
            raise InputError(
                f"model.heads={model.heads} lacks permutation_lm, which PermutationLanguageModel trains; set "
                f"model.heads to {('permutation_lm', *model.heads)}"
            )

    def memory(self, model: ModelConfig, batch_size: int, dtype: Any) -> Any:
        return model.build(dtype=dtype).empty_memory(batch_size, self.memory_length) if self.memory_length else None

    def for_evaluation(self) -> "PermutationLanguageModel":
        """Rows that are evaluated go forward."""
        return replace(self, both_ways=False)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to `inputs` [L], `segments` [L], `order` [L], `positions` [P], `targets` [P] and `backward` [].

        `order` is that of `XLNet.predictions`: tokens that are given have the same even number, of the reused part and
        of the rest; predicted and special ones have odd numbers at random. `targets` are the ids at `positions`, and
        padding at unused ones.

        >>> objective = PermutationLanguageModel(12, 4, input_format="stream", prediction_rate=0.25)
        >>> objective = objective.for_vocabulary(Vocabulary(40))
        >>> row = objective.corrupt(jax.random.key(0), {"ids": jnp.arange(10, 22)})
        >>> row["positions"].tolist(), row["targets"].tolist(), row["inputs"].tolist() == list(range(10, 22))
        ([2, 5, 6], [12, 15, 16], True)
        >>> row["order"].tolist()
        [0, 0, 21, 0, 0, 9, 19, 0, 0, 0, 0, 0]
        """
        row = dict(row)
        backward = row.pop("backward", jnp.zeros((), bool))
        self.check_row(row)
        row = {name: jnp.where(backward, jnp.flip(ids), ids) for name, ids in row.items()}
        arrange_key, choose_key, order_key = jax.random.split(key, 3)
        ids, segments = self._arrange(arrange_key, row)
        vocabulary, count = self.known_vocabulary, self.num_predictions
        candidates = ~masking.is_special(ids, vocabulary)
        starts = masking.word_starts(ids, candidates, vocabulary)
        shares = masking.harmonic_shares(self.longest_span)
        chosen = masking.choose_spans(choose_key, candidates, starts, jnp.int32(count), shares).number >= 0
        positions = jnp.nonzero(chosen, size=count, fill_value=0)[0]
        targets = jnp.where(jnp.arange(count) < chosen.sum(), ids[positions], vocabulary.pad_id)
        reused = self.reused_length if self.is_pair else self.input_length
        return {
            "inputs": ids,
            "segments": segments,
            "order": factorization_order(order_key, candidates & ~chosen, reused),
            "positions": positions,
            "targets": targets,
            "backward": backward,
        }

    def _arrange(self, key: Key[Array, ""], row: Row) -> tuple[Int[Array, "L"], Int[Array, "L"]]:
        """(ids, the segment of each: 0 up to the first separator, then 1, and 2 of [CLS])."""
        if not self.is_pair:
            return row["ids"], jnp.zeros_like(row["ids"])
        vocabulary, reused = self.known_vocabulary, self.reused_length
        room = self.input_length - reused - 3
        cut_key, other_key = jax.random.split(key)
        first = jax.random.randint(cut_key, (), 1, room)  # tokens of A
        text = row["ids"][reused:]
        # Of a random one its beginning, as of the one that follows.
        index = jnp.arange(room)
        other = jnp.roll(row["other"], first)
        text = jnp.where(jax.random.bernoulli(other_key) & (index >= first), other, text)
        place = jnp.arange(room + 3)
        shifted = text[(place - (place > first)).clip(0, room - 1)]
        shifted = jnp.where((place == first) | (place == room + 1), vocabulary.sep_id, shifted)
        shifted = jnp.where(place == room + 2, vocabulary.cls_id, shifted)
        segments = (place > first).astype(jnp.int32) + (place == room + 2)
        ids = jnp.concatenate([row["ids"][:reused], shifted])
        return ids, jnp.pad(segments, (reused, 0)).astype(ids.dtype)

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> Any:
        """(scores, the next memory, where there is one)."""
        scores, memory = model.predictions(
            *(features[name] for name in ("inputs", "segments", "order", "positions")),
            memory=features.get(MEMORY),
            remembered_length=self.reused_length if self.is_pair else None,
            backward=features["backward"] if self.both_ways else None,
            deterministic=key is None,
        )
        return scores, memory if MEMORY in features else None

    def loss_of(self, outputs: Any, features: Features, whole: Features) -> Loss:
        scores, memory = outputs
        targets = features["targets"]
        weights = (targets != self.known_vocabulary.pad_id) * row_weights(features)[:, None]
        total, weight, metrics = vocabulary_loss(scores, targets, weights, least_chunks=1)
        return total, weight, metrics if memory is None else metrics | {MEMORY: memory}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B P"]:
        """The most likely id at each position, without a memory."""
        arguments = [features[name] for name in ("inputs", "segments", "order", "positions")]
        scores, _ = module.apply({"params": params}, *arguments, method="predictions")
        return scores.dense().argmax(axis=-1)


def factorization_order(key: Key[Array, ""], given: Bool[Array, "L"], reused_length: int) -> Int[Array, "L"]:
    """The numbers of `XLNet.predictions`: 0 of what is given in the reused part, and an even one above all of that part
    in the rest; odd ones, drawn without replacement, of the others. So the reused part does not see the rest.

    >>> factorization_order(jax.random.key(0), jnp.array([True, False, False, True, False, True]), 4).tolist()
    [0, 5, 3, 0, 11, 10]
    """
    length = given.shape[0]
    first_key, second_key = jax.random.split(key)
    sizes = (reused_length, length - reused_length)
    keys = (first_key, second_key)
    ranks = [jax.random.permutation(one, size) for one, size in zip(keys, sizes, strict=True)]
    base = jnp.where(jnp.arange(length) < reused_length, 0, 2 * (reused_length + 1))
    return base + jnp.where(given, 0, 2 * jnp.concatenate(ranks) + 1)
