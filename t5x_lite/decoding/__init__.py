"""From a model's next-token logits to text."""

from t5x_lite.decoding.decode import Decoded, decode
from t5x_lite.decoding.greedy import greedy_decode
from t5x_lite.decoding.methods import BeamSearch, GenerationDefaults, Greedy, Method, Sampling

__all__ = ["BeamSearch", "Decoded", "GenerationDefaults", "Greedy", "Method", "Sampling", "decode", "greedy_decode"]
