"""ELMo's objective: a language model from either side of each word (Peters et al. 2018, section 3.1)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Int, Key

from t5x_lite.data.layouts.characters import WordStream
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.models.elmo import ElmoConfig
from t5x_lite.objectives.base import MEMORY, DropoutKey, Features, Loss, Mean, Objective, Row, entropy, row_weights
from t5x_lite.objectives.vocabulary_loss import log_uniform_ids, sampled_loss, vocabulary_loss
from t5x_lite.tokenizers.characters import BEGIN_SENTENCE, END_SENTENCE
from t5x_lite.validation import NonNegative, Range

_SIDES = ("forward", "backward")


@dataclass(frozen=True)
class BidirectionalLanguageModel(Objective):
    """Predicts every word of a row from those before it, and from those after it. The figures are means over both
    directions."""

    input_length: Annotated[int, Range(ge=1)] = 20
    """Words that either direction reads at once; a raw row has one more."""
    max_characters: Annotated[int, Range(ge=3)] = 50
    """Of a word: the model's."""
    num_samples: NonNegative = 8192
    """Draws of words by their rank, which a softmax in training compares the target with, those drawn again once (Jean
    et al. 2015); 0: all words are compared, as they are in evaluation."""
    carries_state: bool = True
    """Rows of a batch go on from those of the batch before, with the states of all layers; otherwise rows are shuffled
    and begin anew."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.layout  # noqa: B018 (checks its lengths)

    @cached_property
    def layout(self) -> WordStream:
        return WordStream(self.input_length + 1, self.max_characters, in_order=self.carries_state)

    def check_model(self, model: ModelConfig) -> None:
        if not isinstance(model, ElmoConfig):
            raise InputError(
                f"model is a {type(model).__name__}, which does not read characters; BidirectionalLanguageModel trains "
                "an ElmoConfig"
            )
        if not model.num_words:
            raise InputError("model.num_words=0 is no output to train; set it to the tokenizer's number of ids")
        if model.max_characters != self.max_characters:
            raise InputError(
                f"objective.max_characters={self.max_characters} is not model.max_characters={model.max_characters}; "
                "choose the same"
            )
        if self.num_samples >= model.num_words:
            raise InputError(
                f"objective.num_samples={self.num_samples} is not below model.num_words={model.num_words}; choose "
                "fewer, or 0 for all"
            )

    def memory(self, model: ModelConfig, batch_size: int, dtype: Any) -> Any:
        return model.build(dtype=dtype).empty_state(batch_size) if self.carries_state else None

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to `inputs` and `targets`, the ids of the words before and after each step [L], their `characters`
        [L + 1, C], whether they count in either direction, `forward` and `backward` [L], and `seed` [].

        Neither `<S>`, going forward, nor `</S>`, going backward, is predicted.
        """
        self.check_row(row)
        mark = row["characters"][:, 1]
        return {
            "inputs": row["ids"][:-1],
            "targets": row["ids"][1:],
            "characters": row["characters"].astype(jnp.int32),
            "forward": (mark[1:] != BEGIN_SENTENCE).astype(jnp.float32),
            "backward": (mark[:-1] != END_SENTENCE).astype(jnp.float32),
            "seed": jax.random.bits(key),
        }

    def features_on_host(self, features: Features) -> Features:
        return {name: features[name] for name in ("inputs", "targets", "forward", "backward")}

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> Any:
        return model.predictions(features["characters"], features.get(MEMORY), deterministic=key is None), key

    def loss_of(self, outputs: Any, features: Features, whole: Features) -> Loss:
        (*scores, state), key = outputs
        sums, rows = {}, row_weights(features)[:, None]
        for side, of_side, targets in zip(_SIDES, scores, ("targets", "inputs"), strict=True):
            arguments = of_side, features[targets], features[side] * rows
            if key is not None and self.num_samples:
                drawn = log_uniform_ids(jax.random.key(features["seed"][0]), self.num_samples, len(of_side.kernel))
                sums[side] = sampled_loss(*arguments, drawn)
            else:
                sums[side] = vocabulary_loss(*arguments)
        total, weight, metrics = jax.tree.map(jnp.add, *sums.values())
        metrics |= {f"{side}_loss": Mean(of_side["loss"], count) for side, (_, count, of_side) in sums.items()}
        return total, weight, metrics | ({MEMORY: state} if self.carries_state else {})

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B L"]:
        """The likeliest word after each, from those before it in its row."""
        scores, _, _ = module.apply({"params": params}, features["characters"], method="predictions")
        return scores.dense().argmax(axis=-1)

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        targets = {"forward": features["targets"], "backward": features["inputs"]}
        return entropy(np.concatenate([ids[features[side] > 0] for side, ids in targets.items()]))
