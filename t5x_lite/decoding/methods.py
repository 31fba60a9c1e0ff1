"""The ways to choose what is written: each is a value that says all about it."""

import math
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float

from t5x_lite.errors import InputError
from t5x_lite.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True)
class Greedy:
    """The most likely next token again and again."""

    @property
    def num_results(self) -> int:
        """Texts for each input."""
        return 1


@dataclass(frozen=True)
class Sampling:
    """Tokens drawn from the model's distribution, or from its better part.

    The distribution is softmax(logits / temperature), of which the `top_k` most likely tokens stay, and of these the
    fewest whose probabilities add up to `top_p` (Fan et al. 2018; Holtzman et al. 2020).
    """

    temperature: float = 1.0
    """Divides the logits: below 1 likely tokens become likelier, above 1 all become more alike."""
    top_k: int = 0
    """Tokens to choose from; 0 means all."""
    top_p: float = 1.0
    """Their share of the probability, in (0, 1]; 1 means all."""
    num_results: int = 1
    """Texts drawn for each input, independently."""

    def __post_init__(self) -> None:
        if not 0.0 < self.temperature < math.inf:
            raise InputError(f"temperature={self.temperature} is not above 0; choose e.g. 0.7, or greedy decoding")
        if self.top_k < 0:
            raise InputError(f"top_k={self.top_k} is negative; choose e.g. 50, or 0 for all tokens")
        if not 0.0 < self.top_p <= 1.0:
            raise InputError(f"top_p={self.top_p} is not in (0, 1]; choose e.g. 0.9, or 1 for all tokens")
        check_num_results(self.num_results)


@dataclass(frozen=True)
class BeamSearch:
    """The `num_beams` best beginnings, extended by a token at a time.

    A text of n tokens, EOS included, scores its log-probability divided by ``((5 + n) / 6) ** alpha`` (Wu et al. 2016,
    section 7). Each step takes the best 2 num_beams continuations of all beginnings; of these the best num_beams that
    do not end go on, and an EOS ends a text if it ranks among the best num_beams, as in fairseq and Transformers. At
    the maximum length the best num_beams count as ended.
    """

    num_beams: int = 4
    """Beginnings that are kept for an input."""
    alpha: float = 0.6
    """Of the length penalty: 0 is none, and more favours longer texts."""
    early_stopping: bool = False
    """Stop as soon as num_beams texts of an input have ended. Otherwise only when no beginning can get a better score
    than the worst of them, even if it went on to the best length without losing probability. A single beam stops at its
    first EOS, as greedy decoding does."""
    num_results: int = 1
    """The best texts are given, best first; at most num_beams."""
    exhaustive_eos: bool = False
    """Let the EOS behind every beginning end a text, however low it ranks. A search as wide as all beginnings is then
    exhaustive; the beam may be wider than the vocabulary."""
    length_power: float | None = None
    """Divide by ``n ** length_power`` instead, and judge beginnings by their score at their present length: as
    Transformers does with its `length_penalty`."""

    def __post_init__(self) -> None:
        if self.num_beams < 1:
            raise InputError(f"num_beams={self.num_beams} is too small; choose 1 or more")
        check_num_results(self.num_results)
        if self.num_results > self.num_beams:
            raise InputError(
                f"num_results={self.num_results} exceeds num_beams={self.num_beams}; choose at most as many results "
                "as beams"
            )
        for name in ("alpha", "length_power"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise InputError(f"{name}={value} is no number; choose e.g. 0.6")

    @property
    def stops_when_full(self) -> bool:
        """Whether num_beams ended texts of an input are final."""
        return self.early_stopping or (self.num_beams == 1 and not self.exhaustive_eos)

    def length_penalty(self, length: Float[Array, ""] | float) -> Float[Array, ""] | float:
        """What the log-probability of a text of `length` tokens is divided by; also of traced numbers.

        >>> BeamSearch(alpha=1.0).length_penalty(7)
        2.0
        """
        if self.length_power is not None:
            return length**self.length_power
        return ((5.0 + length) / 6.0) ** self.alpha


Method = Greedy | Sampling | BeamSearch


def check_num_results(num_results: int) -> None:
    """Raises `InputError` for no result at all."""
    if num_results < 1:
        raise InputError(f"num_results={num_results} is too small; choose 1 or more")


@dataclass(frozen=True)
class GenerationDefaults:
    """What stands at the ends of all that a model writes, and what it never writes.

    A Hugging Face folder may say so; of our own runs nothing is said unless they began as one. How it searches (beams,
    sampling, penalties) is no part of it: a decoding method says that.
    """

    start_id: int | None = None
    """What the decoder reads first, where it is another id than the model's config says."""
    forced_first_id: int | None = None
    """The id that every text begins with."""
    forced_last_id: int | None = None
    """The id at the maximum length, of texts that have not ended before."""
    suppressed_ids: tuple[int, ...] = ()
    """Ids that are never written."""
    ends: bool = True
    """Whether there is an id that ends a text; otherwise all go on to the maximum length."""
    pad_id: int | None = None
    """The padding of a model without a tokenizer; None: 0."""
    eos_id: int | None = None
    """What ends the texts of a model without a tokenizer; None: 1."""

    def limits(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """The arguments of `decode` that say the same."""
        return {
            "pad_id": vocabulary.pad_id,
            "eos_id": vocabulary.eos_id if self.ends else None,
            "forced_first_id": self.forced_first_id,
            "forced_last_id": self.forced_last_id,
            "suppressed_ids": self.suppressed_ids,
        }

    def vocabulary(self, size: int) -> Vocabulary:
        """That of a model without a tokenizer."""
        last = size - 1
        pad_id, eos_id = 0 if self.pad_id is None else self.pad_id, 1 if self.eos_id is None else self.eos_id
        return Vocabulary(size, min(pad_id, last), min(eos_id, last), min(2, last))
