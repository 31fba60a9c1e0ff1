"""The inverse cloze task: which passage a sentence was taken out of (Lee et al. 2019, section 4)."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.layouts.passages import Passages
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.models.realm import RealmConfig, closed, passage_vectors, question_vectors
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Objective, Row, row_weights
from t5x_lite.objectives.contrastive import own_among_all
from t5x_lite.parallel.partitioning import sum_over_pairs
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.validation import Range, Share


@dataclass(frozen=True)
class InverseCloze(Objective):
    """A retriever learns to find, among the passages of a batch, the one that a sentence stands in. It is what REALM
    begins with (Guu et al. 2020, section 3.4).

    Features are `questions` [L], a sentence, and `passages` [P], its passage without it, or in a tenth of the rows with
    it; `is_pair` [], false of passages of one sentence, which have no weight. `accuracy` depends on the batch's size.
    """

    input_length: Annotated[int, Range(ge=8)] = 64
    """Ids of a sentence, special ones included; the end of a longer one is cut."""
    passage_length: Annotated[int, Range(ge=4)] = 288
    """Ids of a passage, without special ones."""
    kept_share: Share = 0.1
    """Of the passages, that keep the sentence, so that words in common count too."""

    roles: ClassVar[tuple[str, ...]] = ("cls", "sep")
    unit: ClassVar[str] = "example"
    compares_rows: ClassVar[bool] = True

    @cached_property
    def layout(self) -> Layout:
        return Passages(self.passage_length)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One passage to a sentence of it and the rest.

        >>> from t5x_lite.data import Vocabulary
        >>> objective = InverseCloze(8, 6, kept_share=0.0).for_vocabulary(Vocabulary(99, cls_id=3, sep_id=4, eos_id=4))
        >>> row = {"ids": jnp.array([10, 11, 12, 20, 21, 0]), "sentences": jnp.array([1, 1, 1, 2, 2, 0])}
        >>> row = objective.corrupt(jax.random.key(1), row | {"spans": jnp.zeros(6, jnp.int32)})
        >>> {name: value.tolist() for name, value in row.items()}
        {'questions': [3, 20, 21, 4, 0, 0, 0, 0], 'passages': [10, 11, 12, 0, 0, 0], 'is_pair': True}
        """
        self.check_row(row)
        vocabulary, room = self.known_vocabulary, self.input_length - 2
        ids, sentences = row["ids"], row["sentences"]
        sentence_key, keep_key = jax.random.split(key)
        number = jax.random.randint(sentence_key, (), 1, jnp.maximum(sentences.max(), 1) + 1)
        taken = sentences == number

        def packed(chosen: Array) -> Int[Array, "P"]:
            """The chosen ids, and padding after them."""
            order = jnp.argsort(~chosen, stable=True)
            return jnp.where(chosen[order], ids[order], vocabulary.pad_id)

        question = jnp.pad(packed(taken), (0, max(room - len(ids), 0)), constant_values=vocabulary.pad_id)[:room]
        keeps = jax.random.uniform(keep_key) < self.kept_share
        passage = jnp.where(keeps, ids, packed((sentences > 0) & ~taken))
        question = closed(question[None], vocabulary)[0]
        return {"questions": question, "passages": passage, "is_pair": sentences.max() > 1}

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> tuple[Array, Array]:
        """The vectors of sentences and of passages."""
        vocabulary, options = self.known_vocabulary, {"deterministic": key is None}
        questions = question_vectors(model, features["questions"], vocabulary, **options)
        return questions, passage_vectors(model, features["passages"], vocabulary, **options)

    def loss_of(self, outputs: tuple[Array, Array], features: Features, whole: Features) -> Loss:
        weights = self.weights(features)
        (questions, passages), scale = outputs, jnp.float32(1.0)

        def on_rows(rows: tuple[Array, ...], others: tuple[Array, ...], scale: Array, first: Array | int) -> Any:
            return own_among_all(*rows, *others, scale, first)

        loss, correct = sum_over_pairs(on_rows, (questions, passages, weights), (passages, weights), scale)
        return loss, weights.sum(), {"loss": loss, "accuracy": correct}

    def weights(self, features: Features) -> Float[Array, "B"]:
        """1 of each row with a sentence and a rest."""
        return row_weights(features) * features["is_pair"]

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B"]:
        """The number of the passage in the batch that fits each sentence best."""
        questions, passages = self.apply(module, params, features)
        return (questions @ passages.T).argmax(axis=1)

    def samples(self, module: nn.Module, params: Any, features: Features) -> Features:
        nearest = features["passages"][self.predict(module, params, features)]
        return {name: features[name] for name in ("questions", "passages")} | {"answers": nearest}

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """A sentence, its passage, and the one in the batch that the model finds nearest."""
        texts = [tokenizer.decode(row[name]) for name in ("questions", "passages", "answers")]
        return "sentence: {}\npassage:  {}\nnearest:  {}\n".format(*texts)

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of a model that finds all passages of a batch alike."""
        pairs, start, total = features["is_pair"], 0, 0.0
        while start < len(pairs):
            end = start + int(features["rows"][start])
            compared = int(pairs[start:end].sum())
            total += compared * math.log(max(compared, 1))
            start = end
        return total / max(int(pairs.sum()), 1)

    def check_model(self, model: ModelConfig) -> None:
        if not isinstance(model, RealmConfig):
            raise InputError(
                f"model is a {type(model).__name__}, which retrieves nothing; give InverseCloze a RealmConfig"
            )
        longest = max(self.input_length, self.passage_length + 2)
        if longest > model.encoder.max_length:
            raise InputError(
                f"objective.input_length={self.input_length}, or objective.passage_length={self.passage_length} and "
                f"two special ids, exceed model.encoder.max_length={model.encoder.max_length}; choose shorter ones or "
                "more positions"
            )
