"""How documents become rows of raw ids. The families differ in it; an objective names the format it takes.

Those of tasks are in `task_formats`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Int

from t5x_lite.data.layouts.base import RowBuilder, SentenceRows, SpecialIds, StreamRows
from t5x_lite.data.pair_rows import PairRows
from t5x_lite.data.text_pair_rows import TextPairRows
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.vocabulary import Vocabulary

Reads = Literal["text", "sentences", "pairs", "labels", "tags", "questions", "choices"]
PairUnit = Literal["segment", "sentence"]
TooLong = Literal["error", "skip", "cut"]


@dataclass(frozen=True)
class RowFormat(ABC):
    """What a row of raw ids is made of. The same documents in the same order give the same rows."""

    length: int
    """Ids of a row, special ones included."""

    reads: ClassVar[Reads] = "sentences"
    """What a document is to `RowBuilder.add`: "text", in one piece; "sentences", each for itself; "pairs", a source and
    a target; "labels", one text or two and a label; "tags", words; "questions" and "choices", as tasks have them: see
    `t5x_lite.data.readers`."""
    unit: ClassVar[str] = "documents"
    """What its documents are called."""
    too_long_means: ClassVar[str] = "cut, longer than a row"
    """What became of the documents that `RowBuilder.too_long` counts."""

    added_ids: ClassVar[tuple[str, ...]] = ()
    """What those ids are called that its rows have beyond the vocabulary's, in the order in which they follow them."""

    @property
    def row_length(self) -> int:
        """Ids of a row as it is stored."""
        return self.length

    @abstractmethod
    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        """What makes the rows; `InputError` where the vocabulary lacks ids that the rows are marked with."""


@dataclass(frozen=True)
class Stream(RowFormat):
    """T5's rows (Raffel et al. 2020, section 3.1.4): documents joined in order, an EOS after each, cut anywhere.

    No row is padded; the last partial one is dropped.

    >>> import numpy as np
    >>> rows = Stream(4).start(Vocabulary(size=100, eos_id=1))
    >>> rows.add([np.array([10, 11, 12], np.int32)])
    >>> rows.add([np.array([20, 21, 22, 23], np.int32)])
    >>> rows.take()
    array([[10, 11, 12,  1],
           [20, 21, 22, 23]], dtype=int32)
    """

    reads: ClassVar[Reads] = "text"

    def __post_init__(self) -> None:
        check_length(self.length, 1, "a row")

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return StreamRows(self.length, vocabulary.eos_id)


@dataclass(frozen=True)
class Sentences(RowFormat):
    """RoBERTa's rows (Liu et al. 2019, section 4.2): `[CLS] sentence sentence ... [SEP] pad ...`.

    As many whole sentences in order as fit; what is longer than a row is cut into rows. Across documents
    ("full-sentences") one more [SEP] stands between the sentences of two; else ("doc-sentences") each document begins a
    row. No text is lost.

    >>> import numpy as np
    >>> vocabulary = Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3)
    >>> rows = Sentences(8, across_documents=True).start(vocabulary)
    >>> rows.add([np.array(sentence, np.int32) for sentence in ([10, 11], [12])])
    >>> rows.add([np.array(sentence, np.int32) for sentence in ([20, 21], [22, 23])])
    >>> rows.finish()
    >>> rows.take()
    array([[ 2, 10, 11, 12,  3, 20, 21,  3],
           [ 2, 22, 23,  3,  0,  0,  0,  0]], dtype=int32)
    """

    across_documents: bool = True

    def __post_init__(self) -> None:
        check_length(self.length, 4, "a sentence")

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return SentenceRows(self.length, marks_of(vocabulary), across_documents=self.across_documents)


@dataclass(frozen=True)
class Pairs(RowFormat):
    """BERT's rows (Devlin et al. 2019, section 3.1 and A.2): `[CLS] A [SEP] B [SEP] pad ...`, where B follows A.

    A unit of "segment" takes sentences of one document until they fill the row, in every tenth row a random part of
    it, and cuts them at a random sentence end into A and B. A unit of "sentence" takes one each (sentence-pair in Liu
    et al. 2019, section 4.2, here with a single [SEP] between the two). What is too long loses ids of its longer
    segment, at random at both ends. A last sentence on its own takes the one before it along as A. Documents of one
    sentence give no pair; `RowBuilder.skipped` counts them.

    `with_other` appends `C pad ...`, a segment of another document that can stand in B's place: at least one id, none
    of them special, and `[CLS] A [SEP] C [SEP]` fits `length`. It begins at a random sentence and is as long as BERT
    makes it: until A and C fill the row, or its document ends. It is drawn from the documents near this one (a thousand
    or two), whose text is another.

    >>> import numpy as np
    >>> vocabulary = Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3)
    >>> rows = Pairs(8, unit="sentence", with_other=True).start(vocabulary)
    >>> rows.add([np.array(sentence, np.int32) for sentence in ([10, 11], [12])])
    >>> rows.add([np.array([20, 21, 22], np.int32)])
    >>> rows.finish()
    >>> rows.take()
    array([[ 2, 10, 11,  3, 12,  3,  0,  0, 20, 21, 22,  0]], dtype=int32)
    """

    unit: PairUnit = "segment"
    with_other: bool = False

    def __post_init__(self) -> None:
        check_length(self.length, 8, "a pair")
        if self.unit not in get_args(PairUnit):
            raise InputError(f"unit={self.unit!r} is unknown; choose one of {', '.join(get_args(PairUnit))}")

    @property
    def row_length(self) -> int:
        return 2 * self.length - 4 if self.with_other else self.length

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        marks = marks_of(vocabulary)
        return PairRows(self.length, self.row_length, marks, unit=self.unit, with_other=self.with_other)


@dataclass(frozen=True)
class TextPairs(RowFormat):
    """Rows of text to text: `source EOS source EOS ... pad ...` and behind it `target EOS target EOS ... pad ...`.

    Packed rows hold whole pairs, those of a row in their order, and the rows make little padding of them: a few dozen
    are open at a time, and a pair goes into the first that has room. Else each pair has a row. Since no text holds EOS,
    segment n of either side reaches to its n-th EOS, and pair n of a row is segment n of both sides.

    >>> import numpy as np
    >>> rows = TextPairs(6, 5).start(Vocabulary(size=100, pad_id=0, eos_id=1))
    >>> for source, target in ([10, 11], [20]), ([12, 13, 14], [21, 22]), ([15], [23]):
    ...     rows.add([np.array(source, np.int32), np.array(target, np.int32)])
    >>> rows.finish()
    >>> rows.take()
    array([[10, 11,  1, 15,  1,  0, 20,  1, 23,  1,  0],
           [12, 13, 14,  1,  0,  0, 21, 22,  1,  0,  0]], dtype=int32)
    """

    length: int
    """Ids of the source side of a row, EOS included."""
    target_length: int
    """Ids of the target side of a row, EOS included."""
    packed: bool = True
    """Several pairs in a row, as many as fit; else one."""
    too_long: TooLong = "error"
    """What becomes of a pair with a side over its length: 'error' refuses the corpus, 'skip' leaves the pair out, 'cut'
    drops the end of that side. The store counts them."""

    reads: ClassVar[Reads] = "pairs"
    unit: ClassVar[str] = "pairs"

    def __post_init__(self) -> None:
        check_length(self.length, 2, "a source")
        check_length(self.target_length, 2, "a target", "target_length")
        if self.too_long not in get_args(TooLong):
            raise InputError(f"too_long={self.too_long!r} is unknown; choose one of {', '.join(get_args(TooLong))}")

    @property
    def row_length(self) -> int:
        return self.length + self.target_length

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        pad_id, eos_id = vocabulary.pad_id, vocabulary.eos_id
        if self.packed and pad_id == eos_id:
            raise InputError(
                f"the tokenizer pads with its EOS (id {eos_id}), which ends the pairs of a packed row; set "
                "packed=False, or use a tokenizer with a padding token"
            )
        return TextPairRows(
            self.length,
            self.target_length,
            pad_id=pad_id,
            eos_id=eos_id,
            packed=self.packed,
            too_long=self.too_long,
        )

    def pairs_of(self, row: Int[np.ndarray, "R"], vocabulary: Vocabulary) -> list[tuple[np.ndarray, np.ndarray]]:
        """(source, target) ids of each pair in a row, without EOS.

        >>> row = np.array([10, 11, 1, 15, 1, 0, 20, 1, 23, 1, 0])
        >>> TextPairs(6, 5).pairs_of(row, Vocabulary(size=100, pad_id=0, eos_id=1))
        [(array([10, 11]), array([20])), (array([15]), array([23]))]
        """
        sources, targets = (self._segments(side, vocabulary.eos_id) for side in np.split(row, [self.length]))
        return list(zip(sources, targets, strict=True))

    def _segments(self, side: np.ndarray, eos_id: int) -> list[np.ndarray]:
        ends = np.flatnonzero(side == eos_id)[: None if self.packed else 1].tolist()
        starts = [0, *(end + 1 for end in ends)]
        return [side[start:end] for start, end in zip(starts, ends, strict=False)]


def check_length(length: int, minimum: int, what: str, name: str = "length") -> None:
    """Raises `InputError` for a length that is too short for `what`."""
    if length < minimum:
        raise InputError(f"{name}={length} is too short for {what}; choose {minimum} or more")


def marks_of(vocabulary: Vocabulary) -> SpecialIds:
    """The ids that mark an encoder's rows; `InputError` where the vocabulary lacks one."""
    cls_id, sep_id = vocabulary.cls_id, vocabulary.sep_id
    if cls_id is None or sep_id is None:
        missing = " and no ".join(name for name, i in (("[CLS]", cls_id), ("[SEP]", sep_id)) if i is None)
        raise InputError(
            f"the tokenizer has no {missing} token; use WordPiece, ByteLevelBPE or SentencePiece with layout='albert' "
            "or 'xlm-roberta'"
        )
    return SpecialIds(cls_id, sep_id, vocabulary.pad_id)
