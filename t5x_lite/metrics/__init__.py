"""Metrics by subject. A new one is a subclass of `Metric` in one of these files, in another file here, or outside.

`t5x_lite.metrics.scores` finds the names of those in this folder.
"""

from t5x_lite.metrics.base import Metric, RatioMetric, bootstrap

__all__ = ["Metric", "RatioMetric", "bootstrap"]
