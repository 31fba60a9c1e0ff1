"""The characters of words, as ELMo reads them (Peters et al. 2018): bytes of UTF-8, and marks."""

import functools

import numpy as np
from jaxtyping import Int

PAD_CHARACTER = 260
"""What fills the characters of a word up; 0 to 255 are bytes of UTF-8."""
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
