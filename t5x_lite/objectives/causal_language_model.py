"""GPT's language model (Radford et al. 2018, section 3.1)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import jax  # noqa: F401 (read by doctests)
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Int, Key

from t5x_lite.data.layouts.text import Stream
from t5x_lite.decoding import Greedy, decode
from t5x_lite.errors import InputError
from t5x_lite.layers.adaptive import AdaptiveScores
from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Objective, Row, check_length, row_weights
from t5x_lite.objectives.vocabulary_loss import token_loss
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
        check_length(self.input_length, model)
        if self.within_documents and not model.packs_rows:
            raise InputError(
                f"within_documents=True packs several texts in a row, which a {type(model).__name__} reads as one; "
                "choose False"
            )

    @property
    def layout(self) -> Stream:
        return Stream(self.input_length + 1)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """`input_length + 1` ids to `inputs` and the `targets` that follow on each, both [input_length].

        >>> row = CausalLanguageModel(3).corrupt(jax.random.key(0), {"ids": jnp.array([7, 8, 9, 1])})
        >>> {name: ids.tolist() for name, ids in row.items()}
        {'inputs': [7, 8, 9], 'targets': [8, 9, 1]}
        """
        self.check_row(row)
        return {"inputs": row["ids"][:-1], "targets": row["ids"][1:]}

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> LazyLogits | AdaptiveScores:
        ids = features["inputs"]
        # The EOS that closes a document is the first input of the next one, which sees nothing of the first.
        starts = ids == self.known_vocabulary.eos_id
        segments = jnp.cumsum(starts, axis=1) if self.within_documents else None
        return model.scores(ids[:, :0], ids, decoder_segments=segments, deterministic=key is None)

    def loss_of(self, outputs: LazyLogits | AdaptiveScores, features: Features, whole: Features) -> Loss:
        targets = features["targets"]
        weights = jnp.ones(targets.shape, jnp.float32) * row_weights(features)[:, None]
        return token_loss(outputs, targets, weights)

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        """The most likely id after each of the inputs, given the true ones before it."""
        return self.apply(module, params, features).dense().argmax(axis=-1)

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        """The first half of each row, the second, and what the model writes after the first, greedily."""
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
