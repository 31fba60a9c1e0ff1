"""What a model is trained to do: one file for each objective of the literature."""

from t5x_lite.objectives.base import Features, Mean, Metrics, Objective, corrupt_rows
from t5x_lite.objectives.distillation import Distillation
from t5x_lite.objectives.masked_language_model import MaskedLanguageModel
from t5x_lite.objectives.no_objective import NoObjective
from t5x_lite.objectives.replaced_tokens import ReplacedTokenDetection
from t5x_lite.objectives.sentence_pairs import NextSentencePrediction, SentenceOrderPrediction
from t5x_lite.objectives.span_boundary import SpanBoundary
from t5x_lite.objectives.span_corruption import SpanCorruption

__all__ = [
    "Distillation",
    "Features",
    "MaskedLanguageModel",
    "Mean",
    "Metrics",
    "NextSentencePrediction",
    "NoObjective",
    "Objective",
    "ReplacedTokenDetection",
    "SentenceOrderPrediction",
    "SpanBoundary",
    "SpanCorruption",
    "corrupt_rows",
]
