"""How examples of tasks become rows of raw ids: what a label is to a task stands in the row behind its ids.

Every id is below 65,536 where the vocabulary is: larger numbers stand there in two halves of 16 bits.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from t5x_lite.data.formats import Reads, RowFormat, check_length, marks_of
from t5x_lite.data.labeled_rows import LabeledRows
from t5x_lite.data.layouts.base import RowBuilder
from t5x_lite.data.task_rows import ChoiceRows, QuestionRows, TaggedRows
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True)
class Labeled(RowFormat):
    """An example a row: `[CLS] A [SEP] pad ...` or `[CLS] A [SEP] B [SEP] pad ...` (Devlin et al. 2019, figure 4), and
    behind these `length` ids its label, a float32 in two halves.

    What is too long loses the ends of its texts, a token at a time of the longer one; the store counts such examples.

    >>> import numpy as np
    >>> from t5x_lite.data.readers import halves
    >>> rows = Labeled(8).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array([10, 11], np.int32), np.array([12, 13, 14, 15], np.int32), halves(1.0)])
    >>> rows.take()
    array([[    2,    10,    11,     3,    12,    13,    14,     3, 16256,
                0]], dtype=int32)
    """

    reads: ClassVar[Reads] = "labels"
    unit: ClassVar[str] = "examples"

    def __post_init__(self) -> None:
        check_length(self.length, 8, "an example")

    @property
    def row_length(self) -> int:
        return self.length + 2

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return LabeledRows(self.length, marks_of(vocabulary))

    def label_of(self, row: Int[np.ndarray, "R"]) -> float:
        """The label in a row.

        >>> Labeled(8).label_of(np.array([2, 10, 3, 0, 0, 0, 0, 0, 16416, 0]))
        2.5
        """
        high, low = row[self.length :].tolist()
        return float(np.uint32(high << 16 | low).view(np.float32))


@dataclass(frozen=True)
class Tagged(RowFormat):
    """Words and their tags: `[CLS] word word ... [SEP] pad ...`; behind these `length` ids as many for the tags, and
    two for the sentence.

    A tag stands where its word's first piece does (Devlin et al. 2019, section 5.3), its number increased by one: 0 is
    no tag. A sentence that is too long goes on in the next row, where a word ends; the number of the sentence, from 0,
    says which rows belong together.

    >>> import numpy as np
    >>> rows = Tagged(8).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array([10, 11, 12], np.int32), np.array([1, 2], np.int32), np.array([0, 4], np.int32)])
    >>> rows.take().reshape(1, 2 * 8 + 2)[0, :16].reshape(2, 8)
    array([[ 2, 10, 11, 12,  3,  0,  0,  0],
           [ 0,  1,  5,  0,  0,  0,  0,  0]], dtype=int32)
    """

    reads: ClassVar[Reads] = "tags"
    unit: ClassVar[str] = "examples"
    too_long_means: ClassVar[str] = "have a word that is longer than a row, and cut"

    def __post_init__(self) -> None:
        check_length(self.length, 8, "a sentence")

    @property
    def row_length(self) -> int:
        return 2 * self.length + 2

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return TaggedRows(self.length, marks_of(vocabulary))


@dataclass(frozen=True)
class QuestionWindows(RowFormat):
    """Questions on parts of a text: `[CLS] question [SEP] window [SEP] pad ...` (Devlin et al. 2019, section 4.2).

    A text that is longer than what the question leaves of a row is read in windows, each `stride` tokens behind the
    one before (the released code). Behind these `length` ids stand the places in the row of the first and the last
    token of the answer, both 0, which is [CLS], where the window has no answer or not all of it; the number of the
    question, from 0; and which of the text's tokens is the window's first; the last two in halves.

    >>> import numpy as np
    >>> rows = QuestionWindows(8, 2, 4).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array([10], np.int32), np.arange(20, 26, dtype=np.int32), np.array([4, 5], np.int32)])
    >>> rows.take()
    array([[ 2, 10,  3, 20, 21, 22, 23,  3,  0,  0,  0,  0,  0,  0],
           [ 2, 10,  3, 22, 23, 24, 25,  3,  5,  6,  0,  0,  0,  2]],
          dtype=int32)
    """

    stride: int = 128
    """Tokens of the text from the beginning of one window to that of the next."""
    question_length: int = 64
    """Tokens of a question; the ends of longer ones are cut."""

    reads: ClassVar[Reads] = "questions"
    unit: ClassVar[str] = "questions"
    too_long_means: ClassVar[str] = "have an answer that no window holds, and count as having none"

    def __post_init__(self) -> None:
        check_length(self.length, 8, "a question and a text")
        for name in ("stride", "question_length"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} is no number of tokens; choose 1 or more")
        if self.question_length > self.length - 4:
            raise InputError(
                f"question_length={self.question_length} leaves no room for a text in length={self.length}; choose "
                f"{self.length - 4} or less"
            )

    @property
    def row_length(self) -> int:
        return self.length + 6

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return QuestionRows(self.length, marks_of(vocabulary), stride=self.stride, question_length=self.question_length)


@dataclass(frozen=True)
class ChoiceSets(RowFormat):
    """An example a row: `[CLS] text [SEP] answer [SEP] pad ...` for each answer, `length` ids each, and behind them
    which one is right (Devlin et al. 2019, section 4.4).

    What is too long loses ends, a token at a time of the longer one; the store counts such examples.

    >>> import numpy as np
    >>> rows = ChoiceSets(8, num_choices=2).start(Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array(ids, np.int32) for ids in ([10, 11], [20], [21, 22], [1])])
    >>> rows.take()
    array([[ 2, 10, 11,  3, 20,  3,  0,  0,  2, 10, 11,  3, 21, 22,  3,  0,
             1]], dtype=int32)
    """

    num_choices: int = 4

    reads: ClassVar[Reads] = "choices"
    unit: ClassVar[str] = "examples"

    def __post_init__(self) -> None:
        check_length(self.length, 8, "a text and an answer")
        if self.num_choices < 2:
            raise InputError(f"num_choices={self.num_choices} leaves nothing to choose; give 2 or more")

    @property
    def row_length(self) -> int:
        return self.num_choices * self.length + 1

    def start(self, vocabulary: Vocabulary) -> RowBuilder:
        return ChoiceRows(self.length, self.num_choices, marks_of(vocabulary))
