"""Rows of running text: a stream, or whole sentences."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from t5x_lite.data.layouts.base import Column, EncoderRows, Layout, RowBuilder, RowSpec, encode_each, with_blanks
from t5x_lite.data.layouts.sentences import SentenceRule, split_sentences
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Positive, Range


class StreamRows(RowBuilder):
    def __init__(self, layout: Layout, vocabulary: Vocabulary) -> None:
        super().__init__(layout, vocabulary)
        self._eos = np.array([vocabulary.eos_id], np.int32)
        self._pieces = [np.empty(0, np.int32)]

    def add(self, document: list[np.ndarray]) -> None:
        self._pieces += [*document, self._eos]
        self.documents += 1
        self.tokens += sum(map(len, document)) + 1

    def take(self) -> list[dict[str, np.ndarray]]:
        ids, length, step = np.concatenate(self._pieces), self._layout.length, self._layout.step
        starts = range(0, len(ids) - length + 1, step)
        self._pieces = [ids[len(starts) * step :]]
        for start in starts:
            self._emit(ids=ids[start : start + length])
        return super().take()

    @property
    def shortage(self) -> tuple[str, str]:
        length = self._layout.length
        return f"{self.tokens} tokens and row_length={length} needs at least as many", "a shorter row_length"


@dataclass(frozen=True)
class Stream(Layout):
    """T5's rows (Raffel et al. 2020, section 3.1.4): documents joined in order, an EOS after each, cut anywhere.

    No row is padded; the last partial one is dropped.

    >>> import numpy as np
    >>> rows = Stream(4).start(Vocabulary(size=100, eos_id=1))
    >>> rows.add([np.array([10, 11, 12], np.int32)])
    >>> rows.add([np.array([20, 21, 22, 23], np.int32)])
    >>> [row["ids"].tolist() for row in rows.take()]
    [[10, 11, 12, 1], [20, 21, 22, 23]]
    """

    length: Positive
    """Ids of a row."""

    builder = StreamRows

    @property
    def step(self) -> int:
        """Ids from the beginning of a row to that of the next."""
        return self.length

    def tokenize(self, examples: list[str], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        return ([ids] for ids in tokenizer.encode_batch(examples))


@dataclass(frozen=True)
class OrderedStream(Stream):
    """Rows of `Stream` that go on from each other, for models with a memory: batches take them in order, and the last
    id of a row, which is only predicted, is the first one of the next, which predicts from it.

    >>> import numpy as np
    >>> rows = OrderedStream(4).start(Vocabulary(size=100, eos_id=1))
    >>> rows.add([np.arange(10, 16, dtype=np.int32)])
    >>> [row["ids"].tolist() for row in rows.take()]
    [[10, 11, 12, 13], [13, 14, 15, 1]]
    """

    length: Annotated[int, Range(ge=2)]
    """Ids of a row."""

    in_order = True

    @property
    def step(self) -> int:
        return self.length - 1


class OverlappingRows(StreamRows):
    """Beside each window as many ids from before as follow its first ones."""

    _MOST_BEFORE = 1 << 18
    """Ids before a window that its others are drawn from."""

    def __init__(self, layout: Layout, vocabulary: Vocabulary) -> None:
        super().__init__(layout, vocabulary)
        self._start, self._random = 0, np.random.default_rng(0)

    def take(self) -> list[dict[str, np.ndarray]]:
        ids, length, step = np.concatenate(self._pieces), self._layout.length, self._layout.step
        while self._start + length <= len(ids):
            start, count = self._start, length - step
            row = {"ids": ids[start : start + length]}
            if self._layout.with_other:
                first = self._random.integers(max(0, start - self._MOST_BEFORE), max(start - count, step) + 1)
                row["other"] = ids[first : first + count]
            self._emit(**row)
            self._start += step
        passed = max(0, self._start - self._MOST_BEFORE)
        self._pieces, self._start = [ids[passed:].copy()], self._start - passed
        return RowBuilder.take(self)


@dataclass(frozen=True)
class OverlappingStream(Stream):
    """Windows of documents joined in order, an EOS after each; a window begins `step` ids after the one before.

    With others, a row has as many ids more as there are after its first `step`, from elsewhere in the text before it.

    >>> import numpy as np
    >>> rows = OverlappingStream(5, step=2, with_other=True).start(Vocabulary(size=100, eos_id=1))
    >>> rows.add([np.arange(10, 18, dtype=np.int32)])
    >>> [row["ids"].tolist() for row in rows.take()]
    [[10, 11, 12, 13, 14], [12, 13, 14, 15, 16], [14, 15, 16, 17, 1]]
    """

    step: Positive = 1
    with_other: bool = False
    both_ways: bool = False
    """Half of the rows of a batch go through the text from its end to its beginning."""

    builder = OverlappingRows
    in_order = True

    @property
    def spec(self) -> RowSpec:
        other = {"other": Column((self.length - self.step,), is_ids=True)} if self.with_other else {}
        return super().spec | other


@dataclass(frozen=True)
class SentenceLayout(Layout):
    """Base of layouts that read documents sentence by sentence."""

    length: Annotated[int, Range(ge=4)]
    """Ids of a row, special ones included."""

    reads_sentences = True

    def tokenize(self, examples: list[str], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        return encode_each([with_blanks(split_sentences(text, sentences)) for text in examples], tokenizer)


class SentenceRows(EncoderRows):
    def __init__(self, layout: Layout, vocabulary: Vocabulary) -> None:
        super().__init__(layout, vocabulary)
        self._room = layout.length - 2
        self._separator = np.array([self._special.sep_id], np.int32)
        self._pieces: list[np.ndarray] = []
        self._filled = 0

    def add(self, document: list[np.ndarray]) -> None:
        self.documents += 1
        separator = 1 if self._layout.across_documents else 0
        self.tokens += sum(map(len, document))
        self.skipped += not any(map(len, document))
        for sentence in document:
            for start in range(0, len(sentence), self._room):
                piece = sentence[start : start + self._room]
                if self._filled + separator + len(piece) > self._room:
                    self.finish()
                if separator and self._filled:
                    self._pieces.append(self._separator)
                    self._filled += 1
                self._pieces.append(piece)
                self._filled += len(piece)
                separator = 0
        if not self._layout.across_documents:
            self.finish()

    def finish(self) -> None:
        if self._filled:
            columns = {"ids": self._special.join(self._layout.length, np.concatenate(self._pieces))}
            if "sentences" in self._layout.spec:
                is_text = [piece is not self._separator for piece in self._pieces]
                numbers = np.repeat(np.cumsum(is_text) * is_text, [len(piece) for piece in self._pieces])
                columns["sentences"] = np.zeros(self._layout.length, np.int32)
                columns["sentences"][1 : 1 + len(numbers)] = numbers
            self._emit(self._room - self._filled, **columns)
        self._pieces, self._filled = [], 0

    @property
    def shortage(self) -> tuple[str, str]:
        return f"{self.tokens} tokens and a row needs one", "text that the tokenizer knows"


@dataclass(frozen=True)
class Sentences(SentenceLayout):
    """RoBERTa's rows (Liu et al. 2019, section 4.2): `[CLS] sentence sentence ... [SEP] pad ...`.

    As many whole sentences in order as fit; longer ones than a row are cut into rows. Across documents
    ("full-sentences") one more [SEP] separates the sentences of two; else ("doc-sentences") each document begins a row.
    No text is lost.

    >>> import numpy as np
    >>> vocabulary = Vocabulary(size=100, pad_id=0, cls_id=2, sep_id=3, eos_id=3)
    >>> rows = Sentences(8, across_documents=True).start(vocabulary)
    >>> rows.add([np.array(sentence, np.int32) for sentence in ([10, 11], [12])])
    >>> rows.add([np.array(sentence, np.int32) for sentence in ([20, 21], [22, 23])])
    >>> rows.finish()
    >>> [row["ids"].tolist() for row in rows.take()]
    [[2, 10, 11, 12, 3, 20, 21, 3], [2, 22, 23, 3, 0, 0, 0, 0]]
    """

    across_documents: bool = True

    builder = SentenceRows


@dataclass(frozen=True)
class NumberedSentences(Sentences):
    """BART's rows: those of `Sentences`, and in `sentences` the number of each id's sentence in the row, from 1, and 0
    for special ids and padding.

    >>> import numpy as np
    >>> rows = NumberedSentences(6).start(Vocabulary(size=100, pad_id=9, cls_id=2, sep_id=3, eos_id=3))
    >>> rows.add([np.array(sentence, np.int32) for sentence in ([10, 11], [12])])
    >>> rows.finish()
    >>> [{name: column.tolist() for name, column in row.items()} for row in rows.take()]
    [{'ids': [2, 10, 11, 12, 3, 9], 'sentences': [0, 1, 1, 2, 0, 0]}]
    """

    across_documents: bool = False

    @property
    def spec(self) -> RowSpec:
        return super().spec | {"sentences": Column((self.length,))}
