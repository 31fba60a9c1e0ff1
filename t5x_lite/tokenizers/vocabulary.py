"""The ranges and the special ids of a vocabulary."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from t5x_lite.errors import InputError
from t5x_lite.validation import NonNegative, Range, Validated

_SPECIAL = ("pad_id", "eos_id", "unk_id", "cls_id", "sep_id", "mask_id")


@dataclass(frozen=True)
class Vocabulary(Validated):
    """Ids 0..size-1, the special ones and the sentinels, which count down (Raffel et al. 2020, sec. 3.1.4).

    Raises `InputError` when the special ids, or the continuations, do not fit.

    >>> t5 = Vocabulary(size=32100, pad_id=0, eos_id=1, unk_id=2, first_sentinel_id=32099, num_sentinels=100)
    >>> t5.sentinel_id(0), t5.sentinel_id(99)
    (32099, 32000)
    """

    size: int
    """Number of ids, sentinels included."""
    pad_id: int = 0
    eos_id: int = 1
    unk_id: int = 2
    first_sentinel_id: int = -1
    """The id of <extra_id_0>; <extra_id_N> is N below it. Without sentinels it has no meaning."""
    num_sentinels: NonNegative = 0
    cls_id: int | None = None
    """Begins a row of an encoder: [CLS], <s>. None where the tokenizer has no such token."""
    sep_id: int | None = None
    """Ends a segment: [SEP], </s>; then it is `eos_id` too."""
    mask_id: int | None = None
    """Stands for a hidden token: [MASK], <mask>."""
    continuations: bytes = field(default=b"", repr=False)
    """`np.packbits` of "this id continues the word before it", a bit an id; empty where unknown."""
    separators: Annotated[int, Range(ge=1)] = 1
    """How many `sep_id` stand between two texts: two in RoBERTa and its descendants."""
    cls_last: bool = False
    """`cls_id` ends a row, after the last separator, as XLNet's do."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _SPECIAL:
            value = getattr(self, name)
            if value is not None and not 0 <= value < self.size:
                raise InputError(
                    f"{name}={value} is not an id of a vocabulary of size={self.size}; choose 0..{self.size - 1}"
                )
        if self.continuations and len(self.continuations) != -(-self.size // 8):
            raise InputError(
                f"continuations has {len(self.continuations)} bytes, a vocabulary of size={self.size} takes "
                f"{-(-self.size // 8)}; make them with np.packbits"
            )
        last = self.first_sentinel_id - self.num_sentinels + 1
        if self.num_sentinels and not 0 <= last <= self.first_sentinel_id < self.size:
            raise InputError(
                f"first_sentinel_id={self.first_sentinel_id} with num_sentinels={self.num_sentinels} leaves the "
                f"vocabulary of size={self.size}; choose first_sentinel_id below size and at least num_sentinels - 1"
            )
        if self.num_sentinels and any(last <= i <= self.first_sentinel_id for i in self.special_ids):
            raise InputError(
                f"num_sentinels={self.num_sentinels} reaches down to id {last}, over a special id of "
                f"{self.special_ids}; choose fewer sentinels"
            )

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The distinct ids among pad, eos, unk, cls, sep and mask, in ascending order."""
        return tuple(sorted({getattr(self, name) for name in _SPECIAL} - {None}))

    @property
    def has_padding(self) -> bool:
        """Whether padding has its own id; otherwise EOS, as in GPT-2, stands for it too."""
        return self.pad_id != self.eos_id

    @property
    def marks_words(self) -> bool:
        """Whether it is known which ids continue a word."""
        return bool(self.continuations)

    def continues_word(self) -> np.ndarray:
        """Bool [size]: whether an id continues the word of the id before it; `InputError` where it is unknown.

        >>> Vocabulary(size=4, continuations=np.packbits([False, False, False, True]).tobytes()).continues_word()
        array([False, False, False,  True])
        """
        if not self.marks_words:
            raise InputError(
                "this vocabulary does not say which ids continue a word; use a tokenizer of words: WordPiece, "
                "ByteLevelBPE or SentencePiece"
            )
        return np.unpackbits(np.frombuffer(self.continuations, np.uint8), count=self.size).astype(bool)

    def sentinel_id(self, number: int) -> int:
        """The id of <extra_id_number>; `InputError` when there is no such sentinel."""
        if not 0 <= number < self.num_sentinels:
            raise InputError(
                f"<extra_id_{number}> is not one of the {self.num_sentinels} sentinels of this vocabulary; "
                f"use a smaller number or a tokenizer with more extra_ids"
            )
        return self.first_sentinel_id - number

    def sentinel_number(self, token_id: int) -> int | None:
        """N when the id is <extra_id_N>, else None."""
        number = self.first_sentinel_id - token_id
        return number if 0 <= number < self.num_sentinels else None
