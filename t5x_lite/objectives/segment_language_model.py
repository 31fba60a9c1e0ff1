"""Transformer-XL's language model: segments that go on from each other (Dai et al. 2019, section 3.2)."""

from dataclasses import dataclass, replace
from typing import Any, Self

from flax import linen as nn

from t5x_lite.data.layouts.text import OrderedStream
from t5x_lite.errors import InputError
from t5x_lite.models.base import ModelConfig
from t5x_lite.models.transformer_xl import TransformerXLConfig
from t5x_lite.objectives.base import MEMORY, DropoutKey, Features, Loss
from t5x_lite.objectives.causal_language_model import CausalLanguageModel
from t5x_lite.validation import NonNegative


@dataclass(frozen=True)
class SegmentLanguageModel(CausalLanguageModel):
    """Predicts every id of a segment from those before it, in the segment and in a memory of what the layers have read
    before. Each row of a batch reads its own part of the corpus, segment by segment."""

    memory_length: NonNegative = 150
    """Tokens before a segment that its layers see in training, each of which they saw with its own memory; 0: none."""
    evaluation_memory_length: NonNegative | None = None
    """The same in evaluation, where more lowers the perplexity; None is memory_length."""
    same_length: bool = False
    """In evaluation each token sees as many as the memory holds; otherwise the last of a segment see more."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.within_documents:
            raise InputError(
                "within_documents=True hides what comes before a document, and SegmentLanguageModel remembers it; "
                "choose False"
            )

    def check_model(self, model: ModelConfig) -> None:
        if not isinstance(model, TransformerXLConfig):
            raise InputError(
                f"model is a {type(model).__name__}, which has no memory of segments; SegmentLanguageModel trains a "
                "TransformerXLConfig"
            )

    @property
    def layout(self) -> OrderedStream:
        return OrderedStream(self.input_length + 1)

    def memory(self, model: ModelConfig, batch_size: int, dtype: Any) -> Any:
        return model.build(dtype=dtype).empty_memory(batch_size, self.memory_length) if self.memory_length else None

    def for_evaluation(self) -> Self:
        if self.evaluation_memory_length is None:
            return self
        return replace(self, memory_length=self.evaluation_memory_length)

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> Any:
        """(scores, the next memory, where there is one)."""
        if MEMORY not in features:
            return model.scores(features["inputs"], deterministic=key is None), None
        options = {"same_length": self.same_length and key is None, "deterministic": key is None}
        return model.scores_and_memory(features["inputs"], features[MEMORY], **options)

    def loss_of(self, outputs: Any, features: Features, whole: Features) -> Loss:
        scores, memory = outputs
        total, weight, metrics = super().loss_of(scores, features, whole)
        return total, weight, metrics if memory is None else metrics | {MEMORY: memory}

    def predict(self, module: nn.Module, params: Any, features: Features) -> Any:
        """The most likely id after each of the inputs, given those before it in its segment."""
        scores = module.apply({"params": params}, features["inputs"], method="scores")
        return scores.dense().argmax(axis=-1)
