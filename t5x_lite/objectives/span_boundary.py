"""SpanBERT's objective: masked spans, and the span-boundary objective (Joshi et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
from flax import linen as nn
from jaxtyping import Array, Int, Key

from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import DropoutKey, Features, Loss, Mean
from t5x_lite.objectives.masked_language_model import InputFormat, MaskedLanguageModel, gather_positions
from t5x_lite.validation import Density, Positive


@dataclass(frozen=True)
class SpanBoundary(MaskedLanguageModel):
    """Spans of whole words, the masked language model on their tokens, and the span-boundary objective added to it.

    Joshi et al. 2020: span lengths in words are geometric up to a longest (section 3.1); mask, random or the tokens
    themselves are drawn once a span; a token's second prediction sees the span's neighbours and its index in it alone
    (section 3.2). Rows are single segments (section 3.3).
    """

    input_format: InputFormat = "doc-sentences"
    """How text fills a row; the paper has one segment of one document."""
    span_probability: Density = 0.2
    """p of the geometric distribution of span lengths."""
    longest_span: Positive = 10
    """Words in a span at most; with p = 0.2 the mean is 3.8."""

    heads: ClassVar[tuple[str, ...]] = ("masked_lm", "span_boundary")

    def mask(self, key: Key[Array, ""], ids: Int[Array, "L"]) -> Features:
        """Beside the masked language model's, for each predicted position: the `left` and `right` neighbours of its
        span, and its `offset` in the span, from 0."""
        choose_key, hide_key = jax.random.split(key)
        spans = self.choose_spans(choose_key, ids, masking.geometric_shares(self.span_probability, self.longest_span))
        features = self.hide(hide_key, ids, spans.number >= 0, group=spans.number)
        positions = features["positions"]
        start, end = spans.start[positions], spans.end[positions]
        return features | {
            "left": (start - 1).clip(0),
            "right": (end + 1).clip(0, ids.shape[0] - 1),
            "offset": (positions - start).clip(0),
        }

    def forward(self, model: nn.Module, features: Features, key: DropoutKey) -> tuple[LazyLogits, LazyLogits]:
        hidden = self.encode(model, features, key)
        left, right = (gather_positions(hidden, features[side]) for side in ("left", "right"))
        tokens = self.scores_of(model, hidden, features)
        return tokens, model.span_boundary_scores(left, right, features["offset"])

    def loss_of(self, outputs: tuple[LazyLogits, LazyLogits], features: Features, whole: Features) -> Loss:
        total, weight, metrics = super().loss_of(outputs[0], features, whole)
        boundary, _, figures = super().loss_of(outputs[1], features, whole)
        return total + boundary, weight, metrics | {f"boundary_{n}": Mean(x, weight) for n, x in figures.items()}
