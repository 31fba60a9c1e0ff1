"""From what a user asks for to a method of decoding."""

from t5x_lite.decoding import BeamSearch, Greedy, Method, Sampling
from t5x_lite.errors import InputError


def choose_method(
    *,
    num_beams: int = 1,
    alpha: float = 0.6,
    early_stopping: bool = False,
    length_power: float | None = None,
    exhaustive_eos: bool = False,
    num_results: int = 1,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
) -> Method:
    """Beam search for several beams, sampling for a temperature, a top_k or a top_p, greedy otherwise.

    A temperature of 0 is greedy too. Raises `InputError` for numbers out of range, and for what excludes each other.
    """
    sampled = temperature is not None or top_k != 0 or top_p != 1.0
    if sampled and num_beams != 1:
        name, value = ("top_p", top_p) if top_p != 1.0 else ("top_k", top_k)
        if temperature is not None:
            name, value = "temperature", temperature
        raise InputError(f"num_beams={num_beams} and {name}={value} exclude each other; search beams or sample")
    if num_beams != 1:
        return BeamSearch(num_beams, alpha, early_stopping, num_results, exhaustive_eos, length_power)
    if sampled and temperature != 0:
        return Sampling(1.0 if temperature is None else temperature, top_k, top_p, num_results)
    if num_results != 1:
        raise InputError(
            f"num_results={num_results} needs several beams or sampling; choose num_beams={max(num_results, 2)}, or a "
            "temperature above 0"
        )
    return Greedy()
