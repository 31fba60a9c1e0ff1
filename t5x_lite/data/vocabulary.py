"""What an id may be: the ranges and the special ids of a vocabulary."""

from dataclasses import dataclass

from t5x_lite.errors import InputError


@dataclass(frozen=True)
class Vocabulary:
    """Ids 0..size-1, three special ones and the sentinels, which count down (Raffel et al. 2020, sec. 3.1.4).

    Raises `InputError` when the special ids do not fit.

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
    """The id of <extra_id_0>; <extra_id_N> is N below it. Without sentinels it means nothing."""
    num_sentinels: int = 0

    def __post_init__(self) -> None:
        for name in ("pad_id", "eos_id", "unk_id"):
            value = getattr(self, name)
            if not 0 <= value < self.size:
                raise InputError(
                    f"{name}={value} is no id of a vocabulary of size={self.size}; choose 0..{self.size - 1}"
                )
        if self.num_sentinels < 0:
            raise InputError(f"num_sentinels={self.num_sentinels} is negative; choose 0 or more")
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
    def special_ids(self) -> tuple[int, int, int]:
        """pad, eos, unk."""
        return self.pad_id, self.eos_id, self.unk_id

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
