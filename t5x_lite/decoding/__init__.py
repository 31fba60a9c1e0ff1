"""From a model's next-token logits to text."""

from t5x_lite.decoding.greedy import greedy_decode

__all__ = ["greedy_decode"]
