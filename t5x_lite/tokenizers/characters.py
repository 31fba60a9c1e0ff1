"""The characters of words, as ELMo reads them (Peters et al. 2018): bytes of UTF-8, and marks."""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from t5x_lite.tokenizers.base import Tokenizer, TokenOffsets, pack_continuations, token_offsets, write_config
from t5x_lite.tokenizers.pipelines import WORD_SPLITS
from t5x_lite.tokenizers.vocabulary import Vocabulary

PAD_CHARACTER = 260
"""What fills the characters of a word up; 0 to 255 are bytes of UTF-8."""
NUM_CHARACTERS = PAD_CHARACTER + 1
BEGIN_WORD, END_WORD = 258, 259
BEGIN_SENTENCE, END_SENTENCE = 256, 257
"""The only character of the two words around a sentence."""


def word_characters(word: str, max_characters: int = 50) -> list[int]:
    """The characters of a word as `Elmo` reads them; `<S>` and `</S>` stand around a sentence.

    >>> word_characters("né", 8)
    [258, 110, 195, 169, 259, 260, 260, 260]
    """
    inside = {"<S>": [BEGIN_SENTENCE], "</S>": [END_SENTENCE]}.get(word, [*word.encode()[: max_characters - 2]])
    row = [BEGIN_WORD, *inside, END_WORD]
    return row + [PAD_CHARACTER] * (max_characters - len(row))


@functools.lru_cache(maxsize=1 << 18)
def character_row(word: str, max_characters: int) -> Int[np.ndarray, "C"]:
    """The same as an array, which must not be changed, of a word of a text, in which `<S>` is a word as others are;
    frequent words are kept."""
    return _row([*word.encode()[: max_characters - 2]], max_characters)


def mark_row(character: int, max_characters: int) -> Int[np.ndarray, "C"]:
    """That of the word around a sentence that has this character."""
    return _row([character], max_characters)


def _row(inside: list[int], max_characters: int) -> Int[np.ndarray, "C"]:
    row = np.full(max_characters, PAD_CHARACTER, np.int16)
    row[: len(inside) + 2] = [BEGIN_WORD, *inside, END_WORD]
    return row


class WordCharacterTokenizer(Tokenizer):
    """See `WordCharacters`.

    >>> WordCharacterTokenizer("punctuation").encode("no!")
    [258, 110, 111, 258, 33]
    """

    vocabulary = Vocabulary(
        NUM_CHARACTERS,
        pad_id=PAD_CHARACTER,
        eos_id=END_SENTENCE,
        unk_id=END_WORD,
        cls_id=BEGIN_SENTENCE,
        sep_id=END_SENTENCE,
        continuations=pack_continuations((n < 256 for n in range(NUM_CHARACTERS)), ()),
    )

    def __init__(self, split: str) -> None:
        self.split = split

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0].tolist()

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        return [tokens.ids for tokens in self.encode_with_offsets(texts)]

    def encode_with_offsets(self, texts: list[str]) -> list[TokenOffsets]:
        """The mark before a word stands for its characters, and its bytes for none."""
        found, splits = [], WORD_SPLITS[self.split]
        for text in texts:
            ids: list[int] = []
            spans: list[tuple[int, int]] = []
            for word, (start, end) in splits.pre_tokenize_str(text):
                content = word.encode()
                ids += [BEGIN_WORD, *content]
                spans += [(start, end), *[(end, end)] * len(content)]
            found.append(token_offsets(ids, spans))
        return found

    def decode(self, ids: Iterable[int]) -> str:
        content = bytearray()
        for token_id in map(int, ids):
            content += bytes([token_id]) if 0 <= token_id < 256 else b" " if token_id == BEGIN_WORD else b""
        return content.decode(errors="replace").strip(" ")

    def decode_span(self, ids: Sequence[int], first: int, last: int) -> str:
        while last + 1 < len(ids) and ids[last + 1] < BEGIN_SENTENCE:
            last += 1
        return super().decode_span(ids, first, last)

    def piece(self, token_id: int) -> str:
        named = {
            BEGIN_SENTENCE: "<S>",
            END_SENTENCE: "</S>",
            BEGIN_WORD: "▁",
            END_WORD: "<unk>",
            PAD_CHARACTER: "<pad>",
        }
        return named.get(token_id) or f"<0x{token_id:02X}>"

    def save(self, folder: Path) -> None:
        write_config(folder, kind="characters", split=self.split)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"characters {self.split}".encode()).hexdigest()
