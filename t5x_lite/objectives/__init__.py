"""What a model is trained to do: one file for each objective of the literature."""

from t5x_lite.objectives.base import Features, Metrics, Objective, corrupt_rows
from t5x_lite.objectives.span_corruption import SpanCorruption

__all__ = ["Features", "Metrics", "Objective", "SpanCorruption", "corrupt_rows"]
