"""What makes the rows of tasks (see `task_formats`)."""

import numpy as np

from t5x_lite.data.labeled_rows import kept_of_two
from t5x_lite.data.layouts.base import MarkedRows, SpecialIds, UnfitDocumentError


class TaskRows(MarkedRows):
    """Base of rows that hold `length` ids, or some times as many, and numbers behind them, which are no padding."""

    def __init__(self, row_length: int, length: int, marks: SpecialIds) -> None:
        super().__init__(row_length, marks)
        self.length = length
        self._pads = 0

    def take(self) -> np.ndarray:
        before = self.padding
        rows = super().take()
        self.padding = before + self._pads
        self._pads = 0
        return rows

    def finish(self) -> None:
        """Nothing: every example has its rows already."""

    @property
    def shortage(self) -> tuple[str, str]:
        return f"{self.documents} examples and a row needs one", "more examples"

    def _laid_out(self, *texts: np.ndarray) -> np.ndarray:
        """`[CLS] text [SEP] text [SEP] pad ...`, which has to fit."""
        ids = np.full(self.length, self.marks.pad_id, np.int32)
        ids[0], end = self.marks.cls_id, 1
        for text in texts:
            ids[end : end + len(text)] = text
            end += len(text) + 1
            ids[end - 1] = self.marks.sep_id
        self._pads += self.length - end
        return ids

    def _count_too_long(self, problem: str) -> None:
        self.too_long += 1
        self.first_too_long = self.first_too_long or (self.documents, problem)


class TaggedRows(TaskRows):
    """See `Tagged`."""

    def __init__(self, length: int, marks: SpecialIds) -> None:
        super().__init__(2 * length + 2, length, marks)

    def add(self, document: list[np.ndarray]) -> None:
        ids, sizes, tags = document
        self.documents += 1
        self.tokens += len(ids)
        room = self.length - 2
        if len(over := np.flatnonzero(sizes > room)):
            word = int(over[0])
            self._count_too_long(
                f"word {word + 1} has {sizes[word]} ids and length={self.length} (the objective's input_length) holds "
                f"{room}"
            )
        ends = np.cumsum(sizes)
        words = [ids[end - size : end][:room] for end, size in zip(ends, sizes, strict=True)]
        first = 0
        while first < len(words):
            held = np.cumsum([len(word) for word in words[first:]]) <= room
            behind = first + int(held.sum())
            self._add_row(words[first:behind], tags[first:behind])
            first = behind

    def _add_row(self, words: list[np.ndarray], tags: np.ndarray) -> None:
        row = self._new_row()
        row[: self.length] = self._laid_out(np.concatenate(words))
        row[self.length :] = 0
        firsts = np.cumsum([1, *(len(word) for word in words[:-1])])
        row[self.length + firsts] = tags + 1
        row[-2:] = number_halves(self.documents - 1)


class QuestionRows(TaskRows):
    """See `QuestionWindows`."""

    def __init__(self, length: int, marks: SpecialIds, *, stride: int, question_length: int) -> None:
        super().__init__(length + 6, length, marks)
        self._stride, self._question_length = stride, question_length

    def add(self, document: list[np.ndarray]) -> None:
        question, context, answer = document
        question = question[: self._question_length]
        self.documents += 1
        self.tokens += len(question) + len(context)
        room = self.length - 3 - len(question)
        held = False
        for start in window_starts(len(context), room, self._stride):
            window = context[start : start + room]
            inside = len(answer) and start <= answer[0] and answer[1] < start + len(window)
            held = held or bool(inside)
            places = answer - start + len(question) + 2 if inside else np.zeros(2, np.int32)
            row = self._new_row()
            row[: self.length] = self._laid_out(question, window)
            row[self.length :] = [*places, *number_halves(self.documents - 1), *number_halves(start)]
        if len(answer) and not held:
            self._count_too_long(
                f"its answer has {answer[1] - answer[0] + 1} tokens and a window of length={self.length} (the "
                f"objective's input_length) holds {room}, one every stride={self._stride}"
            )


class ChoiceRows(TaskRows):
    """See `ChoiceSets`."""

    def __init__(self, length: int, num_choices: int, marks: SpecialIds) -> None:
        super().__init__(num_choices * length + 1, length, marks)
        self._num_choices = num_choices

    def add(self, document: list[np.ndarray]) -> None:
        text, *answers, label = document
        if len(answers) != self._num_choices:
            raise UnfitDocumentError(
                f"it has {len(answers)} choices, and objective.num_choices={self._num_choices}; set that to "
                f"{len(answers)}"
            )
        self.documents += 1
        self.tokens += len(text) + sum(map(len, answers))
        room, row = self.length - 3, self._new_row()
        if (longest := len(text) + max(map(len, answers))) > room:
            self._count_too_long(
                f"it has {longest + 3} ids, special ones included, which is over length={self.length} (the objective's "
                "input_length)"
            )
        sets = []
        for answer in answers:
            kept, of_answer = kept_of_two([len(text), len(answer)], room)
            sets.append(self._laid_out(text[:kept], answer[:of_answer]))
        row[:-1], row[-1] = np.concatenate(sets), label[0]


def window_starts(size: int, room: int, stride: int) -> list[int]:
    """Where windows begin that go over `size` tokens, `room` at a time: the last one reaches the end.

    >>> window_starts(10, 4, 3), window_starts(4, 4, 3), window_starts(5, 2, 3)
    ([0, 3, 6], [0], [0, 2, 4])
    """
    step = min(stride, room)
    return list(range(0, max(size - room, 0) + step, step))


def number_halves(number: int) -> tuple[int, int]:
    """A whole number below 2^32 as two ids of 16 bits.

    >>> number_halves(65_537)
    (1, 1)
    """
    return number >> 16, number & 0xFFFF
