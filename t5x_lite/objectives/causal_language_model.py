"""The language model of GPT: every token from those before it (Radford et al. 2018, equation 1)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.layouts.text import Stream
from t5x_lite.decoding import Greedy, decode
from t5x_lite.errors import InputError
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Objective, Row
from t5x_lite.objectives.text_to_text import TextToText, kept_ids
from t5x_lite.objectives.vocabulary_loss import vocabulary_loss
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Range


@dataclass(frozen=True)
class CausalLanguageModel(Objective):
    """Predicts every id of a row from those before it."""

    input_length: Annotated[int, Range(ge=2)] = 1024
    """Ids that the model reads at once; a raw row has one more."""
    within_documents: bool = False
    """Read each document as if it stood alone: attention and positions begin anew at the EOS before it. Otherwise
    documents follow each other as one text (GPT-2, GPT-3)."""

    targets_are_text: ClassVar[bool] = True

    def check_model(self, model: ModelConfig) -> None:
        if model.architecture != "decoder":
            raise InputError(
                f"model is a {type(model).__name__}; CausalLanguageModel trains a decoder, such as GptConfig"
            )
        if model.full_prefix:
            raise InputError(
                "model.full_prefix=True reads its inputs whole, and CausalLanguageModel gives it none; "
                "set model.full_prefix to False, or train it with PrefixLanguageModel"
            )
        if model.max_length is not None and self.input_length > model.max_length:
            raise InputError(
                f"objective.input_length={self.input_length} exceeds model.max_length={model.max_length}; "
                "choose shorter rows or more positions"
            )

    @property
    def layout(self) -> Stream:
        return Stream(self.input_length + 1)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`input_length + 1` ids to `inputs` and the `targets` that follow on each, both [input_length].

        >>> import jax
        >>> row = CausalLanguageModel(3).corrupt(jax.random.key(0), {"ids": jnp.array([7, 8, 9, 1])})
        >>> {name: ids.tolist() for name, ids in row.items()}
        {'inputs': [7, 8, 9], 'targets': [8, 9, 1]}
        """
        self.check_row(row)
        return {"inputs": row["ids"][:-1], "targets": row["ids"][1:]}

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
        scores = self._scores(module, params, features["inputs"], key)
        weights = jnp.ones(features["targets"].shape, jnp.float32)
        if "valid" in features:
            weights *= features["valid"][:, None]
        return vocabulary_loss(scores, features["targets"], weights)

    def _scores(self, module: nn.Module, params: Any, ids: Int[Array, "B L"], key: Key[Array, ""] | None) -> LazyLogits:
        # The EOS that closes a document is what the next one begins with: nothing of the first is left in it.
        starts = ids == self.known_vocabulary.eos_id
        return module.apply(
            {"params": params},
            ids[:, :0],
            ids,
            decoder_segments=jnp.cumsum(starts, axis=1) if self.within_documents else None,
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
            method="scores",
        )

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        """The most likely id after each of the inputs, given the true ones before it."""
        return self._scores(module, params, features["inputs"], None).dense().argmax(axis=-1)

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        """The first half of each row, the second, and how the model goes on from the first, greedily."""
        text, vocabulary = features["inputs"], self.known_vocabulary
        half = text.shape[1] // 2
        written = decode(
            module,
            params,
            text[:, : half - 1],
            method=Greedy(),
            start_ids=text[:, half - 1],
            max_length=text.shape[1] - half,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
        )
        return {"inputs": text[:, :half], "targets": text[:, half:], "answers": written.ids[:, 0]}


@dataclass(frozen=True)
class PrefixLanguageModel(TextToText):
    """A row is cut at a random place, all of them equally likely: the input is what is before it, the target the rest.

    Neither is ever empty. Both are padded to the longest that there can be.
    """

    input_length: int = 512
    """Ids of a raw row, and of the input and the target at most, EOS included."""

    @property
    def layout(self) -> Stream:
        return Stream(self.input_length)

    @property
    def target_length(self) -> int:
        return self.input_length

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`input_length` ids to `inputs` and `targets`, both as long."""
        self.check_row(row)
        ids = row["ids"]
        prefix = jax.random.randint(key, (), 1, ids.shape[0])
        inputs, targets = split_at(ids, prefix, self.known_vocabulary)
        return {"inputs": inputs, "targets": targets}


def split_at(
    raw: Int[Array, "R"], prefix: Int[Array, ""] | int, vocabulary: Vocabulary
) -> tuple[Int[Array, "R"], Int[Array, "R"]]:
    """(inputs, targets): the first `prefix` ids of a row and the others, each closed by EOS and padded.

    >>> [side.tolist() for side in split_at(jnp.array([7, 8, 9, 7]), 3, Vocabulary(size=10))]
    [[7, 8, 9, 1], [7, 1, 0, 0]]
    """
    index, length = jnp.arange(raw.shape[0]), raw.shape[0]
    return tuple(kept_ids(raw, kept, vocabulary, length) for kept in (index < prefix, index >= prefix))
