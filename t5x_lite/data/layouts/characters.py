"""Rows of words with their characters, for models that read those."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from t5x_lite.data.layouts.base import Column, Layout, RowBuilder, RowSpec
from t5x_lite.data.layouts.sentences import SentenceRule, split_sentences
from t5x_lite.tokenizers.base import Tokenizer
from t5x_lite.tokenizers.characters import BEGIN_SENTENCE, END_SENTENCE, character_row, mark_row
from t5x_lite.tokenizers.vocabulary import Vocabulary
from t5x_lite.validation import Range


class WordRows(RowBuilder):
    def __init__(self, layout: Layout, vocabulary: Vocabulary) -> None:
        super().__init__(layout, vocabulary)
        self._ids: list[int] = []
        self._characters: list[np.ndarray] = []

    def add(self, document: list[tuple[np.ndarray, list[str]]]) -> None:
        mark, most = self._vocabulary.eos_id, self._layout.max_characters
        for ids, words in document:
            self._ids += [mark, *ids.tolist(), mark]
            text = (character_row(word, most) for word in words)
            self._characters += [mark_row(BEGIN_SENTENCE, most), *text, mark_row(END_SENTENCE, most)]
            self.tokens += len(ids) + 2
        self.documents += 1
        self.skipped += not document

    def take(self) -> list[dict[str, np.ndarray]]:
        length, start = self._layout.length, 0
        while start + length <= len(self._ids):
            end = start + length
            self._emit(ids=np.array(self._ids[start:end], np.int32), characters=np.stack(self._characters[start:end]))
            start = end - 1
        self._ids, self._characters = self._ids[start:], self._characters[start:]
        return super().take()

    @property
    def shortage(self) -> tuple[str, str]:
        length = self._layout.length
        return f"{self.tokens} words and row_length={length} needs at least as many", "a shorter row_length"


@dataclass(frozen=True)
class WordStream(Layout):
    """Words with their characters, sentences joined in order between `<S>` and `</S>`, both with the id of EOS; the
    last word of a row is the first one of the next (Peters et al. 2018, section 3).

    >>> from t5x_lite.tokenizers.characters import word_characters
    >>> rows = WordStream(4, max_characters=5).start(Vocabulary(size=100, eos_id=1))
    >>> rows.add([(np.array([10, 11], np.int32), ["a", "dog"]), (np.array([12], np.int32), ["b"])])
    >>> first, second = rows.take()
    >>> first["ids"].tolist(), second["ids"].tolist()
    ([1, 10, 11, 1], [1, 1, 12, 1])
    >>> first["characters"][2].tolist() == word_characters("dog", 5)
    True
    """

    length: Annotated[int, Range(ge=2)]
    """Words of a row."""
    max_characters: Annotated[int, Range(ge=3)] = 50
    """Of a word, the two around it included; longer ones are cut."""
    in_order: bool = True

    builder = WordRows
    reads_sentences = True

    @property
    def spec(self) -> RowSpec:
        return super().spec | {"characters": Column((self.length, self.max_characters), np.int16)}

    def tokenize(self, examples: list[str], tokenizer: Tokenizer, sentences: SentenceRule) -> Iterator[list[Any]]:
        for text in examples:
            parts = split_sentences(text, sentences)
            encoded = tokenizer.encode_with_offsets(list(parts))
            of_parts = [
                (tokens.ids, [part[start:end] for start, end in tokens.spans.tolist()])
                for part, tokens in zip(parts, encoded, strict=True)
            ]
            yield [(ids, words) for ids, words in of_parts if words]
