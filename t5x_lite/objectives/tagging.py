"""Fine-tuning on the tags of words (Devlin et al. 2019, section 5.3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from t5x_lite.data.layouts.base import Layout
from t5x_lite.data.tasks.tagging import Tagged
from t5x_lite.models.base import ModelConfig
from t5x_lite.objectives.base import Features, Loss, Predictions, entropy, row_weights
from t5x_lite.objectives.losses import weighted_loss
from t5x_lite.objectives.task import TextTask
from t5x_lite.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Tagging(TextTask):
    """The head `tagging` learns the tag of each word at the word's first piece; other pieces have no tag.

    Features are `inputs` [L]; `tags` [L], -1 where there is none; and `example` [], the number of the sentence, of
    which a long one has several rows.
    """

    input_length: int = 128
    """Ids of a row, special ones and padding included; longer sentences go on in another row."""

    head = "tagging"
    has_classes = True
    has_segments = False
    unit: ClassVar[str] = "word"
    submissions = ("conll", "jsonl")

    @cached_property
    def layout(self) -> Layout:
        return Tagged(self.input_length)

    def loss_of(self, outputs: Float[Array, "B L C"], features: Features, whole: Features) -> Loss:
        tags = features["tags"]
        return weighted_loss(outputs, tags, (tags >= 0) * row_weights(features)[:, None])

    def prediction_outputs(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B L"]:
        """The likeliest tag of every piece."""
        return self.predict(module, params, features)

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
        """The tags of each sentence, over all of its rows."""
        predicted: dict[int, list[str]] = {}
        references: dict[int, list[str]] = {}
        for output, tags, example in zip(outputs, features["tags"], features["example"].tolist(), strict=True):
            first_pieces = tags >= 0
            for sentences, numbers in ((predicted, output), (references, tags)):
                sentences.setdefault(example, []).extend(labels[number] for number in numbers[first_pieces].tolist())
        return Predictions("tags", list(predicted.values()), list(references.values()), list(map(str, predicted)))

    def default_metrics(self, predictions: Predictions) -> tuple[str, ...]:
        return ("entities", "strict_entities") if are_entities(predictions.references) else ("accuracy",)

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


def are_entities(tags: Iterable[Sequence[str]]) -> bool:
    """Whether the tags of sentences mark entities, as `B-PER` and `I-PER` do, and O what is none.

    >>> are_entities([["O", "I-PER"], ["O"]]), are_entities([["NOUN", "VERB"]])
    (True, False)
    """
    found = {tag for sentence in tags for tag in sentence}
    return found != {"O"} and all(tag == "O" or tag[1:2] == "-" for tag in found)
