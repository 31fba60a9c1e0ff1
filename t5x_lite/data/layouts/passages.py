"""Passages of a corpus, for a model that retrieves them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from t5x_lite.data.layouts.base import Column, Layout, RowBuilder, RowSpec, with_blanks
from t5x_lite.data.layouts.salient_spans import salient_spans
from t5x_lite.data.layouts.sentences import SentenceRule, split_sentences
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Range


class PassageRows(RowBuilder):
    """See `Passages`."""

    def __init__(self, layout: Layout, vocabulary: Vocabulary) -> None:
        super().__init__(layout, vocabulary)
        self._pad_id = vocabulary.pad_id

    def add(self, document: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.documents += 1
        length, waiting, count = self._layout.length, [], 0
        for ids, spans in document:
            self.tokens += len(ids)
            for start in range(0, len(ids), length):  # pieces of a sentence that is longer than a passage
                piece = ids[start : start + length], spans[start : start + length]
                if count + len(piece[0]) > length:
                    self._add_passage(waiting)
                    waiting, count = [], 0
                waiting.append(piece)
                count += len(piece[0])
        if waiting:
            self._add_passage(waiting)
        else:
            self.skipped += 1

    def _add_passage(self, sentences: list[tuple[np.ndarray, np.ndarray]]) -> None:
        length = self._layout.length
        columns = {"ids": np.full(length, self._pad_id, np.int32)}
        columns |= {name: np.zeros(length, np.int32) for name in ("sentences", "spans")}
        end = num_spans = 0
        for number, (ids, spans) in enumerate(sentences):
            start, end = end, end + len(ids)
            columns["ids"][start:end] = ids
            columns["sentences"][start:end] = number + 1
            _, renumbered = np.unique(np.concatenate([[0], spans]), return_inverse=True)
            columns["spans"][start:end] = np.where(spans > 0, renumbered[1:] + num_spans, 0)
            num_spans += int(renumbered.max())
        self._emit(length - end, **columns)

    @property
    def shortage(self) -> tuple[str, str]:
        return f"{self.documents} documents without a word, and a row needs one", "text"


@dataclass(frozen=True)
class Passages(Layout):
    """Consecutive whole sentences of a document, as many as fit, without special ids (Lee et al. 2019, section 4).

    `sentences` is the number of each id's sentence, from 1, and `spans` that of the name or date it is of, from 1; 0
    elsewhere: see `salient_spans`. A sentence that is longer than a passage is cut.

    >>> rows = Passages(6).start(Vocabulary(size=100, pad_id=0))
    >>> rows.add([(np.array([10, 11, 12]), np.array([0, 1, 1])), (np.array([20, 21]), np.array([1, 0]))])
    >>> [{name: column.tolist() for name, column in row.items()} for row in rows.take()]
    [{'ids': [10, 11, 12, 20, 21, 0], 'sentences': [1, 1, 1, 2, 2, 0], 'spans': [0, 1, 1, 2, 0, 0]}]
    """

    length: Annotated[int, Range(ge=4)]
    """Ids of a passage."""

    builder = PassageRows
    reads_sentences = True

    @property
    def spec(self) -> RowSpec:
        return super().spec | {name: Column((self.length,)) for name in ("sentences", "spans")}

    def tokenize(self, examples: list[str], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        """Of each document the ids of its sentences, and the number of each id's name or date; 0: it is of none."""
        documents = [with_blanks(split_sentences(text, sentences)) for text in examples]
        encoded = iter(tokenizer.encode_with_offsets([sentence for document in documents for sentence in document]))
        for document in documents:
            rows = []
            for sentence, (ids, characters) in zip(document, encoded, strict=False):
                rows.append((np.asarray(ids, np.int32), _spans_of(characters, salient_spans(sentence))))
            yield rows


def _spans_of(characters: np.ndarray, spans: list[tuple[int, int]]) -> np.ndarray:
    """The number of the span of characters, from 1, that each token is of, in part or whole; 0: of none.

    >>> _spans_of(np.array([[0, 3], [4, 7], [7, 9], [10, 12]]), [(4, 9), (11, 12)]).tolist()
    [0, 1, 1, 2]
    """
    bounds = np.array(spans, np.int64).reshape(-1, 2)
    number = np.searchsorted(bounds[:, 0], characters[:, 1])  # spans that begin before the token's end
    ends = np.concatenate([[0], bounds[:, 1]])[number]
    return np.where(ends > characters[:, 0], number, 0).astype(np.int32)
