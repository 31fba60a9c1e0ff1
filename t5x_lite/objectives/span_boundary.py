"""SpanBERT's objective: hide spans, predict their tokens also from the span's two neighbours (Joshi et al. 2020)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.layers.embedding import LazyLogits
from t5x_lite.objectives import masking
from t5x_lite.objectives.base import Features, Mean, Metrics
from t5x_lite.objectives.masked_language_model import InputFormat, MaskedLanguageModel, apply, gather_positions
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

    def spans(self, key: Key[Array, ""], ids: Int[Array, "L"]) -> masking.Spans:
        """The spans that are hidden in a row."""
        candidates = ~masking.is_special(ids, self.known_vocabulary)
        starts = masking.word_starts(ids, candidates, self.known_vocabulary)
        shares = masking.geometric_shares(self.span_probability, self.longest_span)
        return masking.choose_spans(key, candidates, starts, self._count(ids), shares)

    def mask(self, key: Key[Array, ""], ids: Int[Array, "L"]) -> Features:
        """Beside the masked language model's, for each position asked for: the `left` and `right` neighbours of its
        span, and its `offset` in the span, from 0."""
        choose_key, hide_key = jax.random.split(key)
        spans = self.spans(choose_key, ids)
        chosen = spans.number >= 0
        hidden = self._hide(hide_key, ids, chosen, group=spans.number)
        features = {"inputs": hidden} | self._questions(ids, chosen)
        positions = features["positions"]
        start, end = spans.start[positions], spans.end[positions]
        return features | {
            "left": (start - 1).clip(0),
            "right": (end + 1).clip(0, ids.shape[0] - 1),
            "offset": (positions - start).clip(0),
        }

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
        def forward(model: nn.Module) -> tuple[LazyLogits, LazyLogits]:
            hidden = self.encode(model, features, key)
            left, right = (gather_positions(hidden, features[side]) for side in ("left", "right"))
            tokens = model.masked_lm_scores(gather_positions(hidden, features["positions"]))
            return tokens, model.span_boundary_scores(left, right, features["offset"])

        scores, boundary_scores = apply(module, params, forward, key)
        total, weight, metrics = self.masked_lm_loss(scores, features)
        boundary, _, figures = self.masked_lm_loss(boundary_scores, features)
        figures = {f"boundary_{name}": Mean(value, weight) for name, value in figures.items()}
        return total + boundary, weight, metrics | figures
