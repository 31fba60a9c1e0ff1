"""From a model's next-token logits to text."""

from t5x_lite.decoding.beam_search import BeamSearch
from t5x_lite.decoding.decode import Decoded, decode
from t5x_lite.decoding.methods import GenerationDefaults, Method
from t5x_lite.decoding.sampling import Greedy, Sampling

__all__ = ["BeamSearch", "Decoded", "GenerationDefaults", "Greedy", "Method", "Sampling", "decode"]
