"""Fine-tuning on words: which tag each of them has (Devlin et al. 2019, section 5.3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax  # noqa: F401 (read by doctests)
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.tagging import Tagged
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Metrics, Predictions, Row, entropy
from t5x_lite.objectives.losses import cross_entropy
from t5x_lite.objectives.masked_language_model import row_weights
from t5x_lite.objectives.task import TaskObjective
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary  # noqa: F401 (read by doctests)


@dataclass(frozen=True)
class Tagging(TaskObjective):
    """The head `tagging` learns the tag of each word at the word's first piece; the other pieces are asked nothing.

    Features are `inputs` [L]; `tags` [L], -1 where none is asked for; and `example` [], the number of the sentence, of
    which a long one has several rows.
    """

    input_length: int = 128
    """Ids of a row, special ones and padding included; longer sentences go on in another row."""

    head = "tagging"
    has_classes = True
    unit: ClassVar[str] = "word"
    submissions = ("conll", "jsonl")

    @cached_property
    def layout(self) -> Layout:
        return Tagged(self.input_length)

    def corrupt(self, key: Key[Array, ""], row: Row) -> Features:
        """One row to its features; nothing is random.

        >>> objective = Tagging(8).for_vocabulary(Vocabulary(20, cls_id=3, sep_id=4, eos_id=4))
        >>> ids, tags = jnp.array([3, 10, 11, 12, 4, 0, 0, 0]), jnp.array([-1, 0, -1, 5, -1, -1, -1, -1])
        >>> row = objective.corrupt(jax.random.key(0), {"ids": ids, "tags": tags, "example": jnp.int32(7)})
        >>> sorted(row), row["example"].item()
        (['example', 'inputs', 'tags'], 7)
        """
        self.check_row(row)
        return {"inputs": row["ids"], "tags": row["tags"], "example": row["example"]}

    def loss_of(
        self, logits: Float[Array, "B L C"], features: Features
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        tags = features["tags"]
        weights = (tags >= 0) * row_weights(features)[:, None]
        losses, _ = cross_entropy(logits, tags)
        # Where nothing is asked for, the loss of tag -1 is no number to count on.
        total = jnp.where(weights > 0, losses, 0.0).sum()
        correct = ((logits.argmax(axis=-1) == tags) * weights).sum()
        return total, weights.sum(), {"loss": total, "accuracy": correct}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B L"]:
        """The likeliest tag of each token, by its number."""
        return self.logits(module, params, features).argmax(axis=-1)

    def predicts(self, model: ModelConfig) -> str:
        return "tags"

    def predictions(
        self,
        outputs: np.ndarray,
        features: Mapping[str, np.ndarray],
        documents: Iterable[Any],
        tokenizer: Tokenizer | None,
        labels: Sequence[str] | None,
    ) -> Predictions:
        """The tags of each sentence; one that stands in several rows is put together."""
        predicted: dict[int, list[str]] = {}
        references: dict[int, list[str]] = {}
        for output, tags, example in zip(outputs, features["tags"], features["example"].tolist(), strict=True):
            first_pieces = tags >= 0
            for sentences, numbers in ((predicted, output), (references, tags)):
                sentences.setdefault(example, []).extend(labels[number] for number in numbers[first_pieces].tolist())
        return Predictions("tags", list(predicted.values()), list(references.values()), list(map(str, predicted)))

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        are_entities = any("-" in tag for tags in predictions.references for tag in tags)
        return ("entities", "strict_entities") if are_entities else ("accuracy",)

    def format_sample(self, row: dict[str, np.ndarray], tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> str:
        """The words with their tags, and the model's where it has another one."""
        ids, tags, predicted = row["inputs"], row["tags"], row["answers"]
        (firsts,) = np.nonzero(tags >= 0)
        # SEP, which is not written, closes the last word.
        ends = [*firsts[1:], int((ids != tokenizer.vocabulary.pad_id).sum())]
        words = []
        for first, end in zip(firsts, ends, strict=True):
            other = f" (model: {labels[predicted[first]]})" if predicted[first] != tags[first] else ""
            words.append(f"{tokenizer.decode(ids[first:end]).strip()}/{labels[tags[first]]}{other}")
        return "  ".join(words) + "\n"

    def baseline_loss(self, features: dict[str, np.ndarray], model: ModelConfig) -> float:
        """The loss of the best answer that is the same for all words: the entropy of the tags."""
        tags = features["tags"]
        return entropy(tags[tags >= 0])
