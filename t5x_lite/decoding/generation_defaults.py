"""What belongs to a model, rather than to a way of decoding, when it writes."""

from dataclasses import dataclass
from typing import Any

from t5x_lite.data.vocabulary import Vocabulary


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
