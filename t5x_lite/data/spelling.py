"""Tokens one by one, as people can read them."""

import functools
from collections.abc import Iterable

import numpy as np

from t5x_lite.data.base_tokenizer import Tokenizer

_BLANKS = {" ": "␣", "▁": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}


def spell_tokens(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[str, ...]:
    """A word for each id, none of them empty.

    Special tokens have their names. What continues the word before it has `·` in front, or `##` as WordPiece writes it.
    Blanks and line breaks that are tokens are shown as signs; bytes that make no character as `<0xE2>`, ids beyond the
    vocabulary as `<id 300>`.

    >>> from t5x_lite.data.byte_tokenizer import ByteTokenizer
    >>> tokenizer = ByteTokenizer(0)
    >>> spell_tokens(tokenizer, [*tokenizer.encode("a ä"), 1])
    ('a', '␣', '<0xC3>', '<0xA4>', '</s>')
    """
    vocabulary, ids = tokenizer.vocabulary, [int(token_id) for token_id in ids]
    continues = vocabulary.continues_word() if vocabulary.marks_words else np.zeros(vocabulary.size, bool)
    words: list[str] = []
    for index, token_id in enumerate(ids):
        word = _spell(tokenizer, token_id)
        # A text's first word may have no blank before it, and a blank may be a token of its own.
        inside = index > 0 and words[-1][-1].isalnum()
        if inside and word[0].isalnum() and token_id < vocabulary.size and continues[token_id]:
            word = f"·{word}"
        words.append(word)
    return tuple(words)


def spell_token(tokenizer: Tokenizer, token_id: int) -> str:
    """The same for a token by itself, wherever it may stand."""
    word, vocabulary = _spell(tokenizer, token_id), tokenizer.vocabulary
    continues = vocabulary.marks_words and token_id < vocabulary.size and vocabulary.continues_word()[token_id]
    return f"·{word}" if continues and word[0].isalnum() else word


def _spell(tokenizer: Tokenizer, token_id: int) -> str:
    vocabulary = tokenizer.vocabulary
    if not 0 <= token_id < vocabulary.size:
        return f"<id {token_id}>"
    piece = tokenizer.piece(token_id)
    if token_id in vocabulary.special_ids:
        return piece.strip("▁ ") or f"<id {token_id}>"
    text = tokenizer.decode([token_id])
    if "\ufffd" in text:
        text = _bytes_of(piece)
    text = text.strip(" ") or text or piece or f"<id {token_id}>"
    return "".join(_BLANKS.get(c, c) if c in _BLANKS or c.isprintable() else f"<0x{ord(c):02X}>" for c in text)


def _bytes_of(piece: str) -> str:
    """The bytes of a byte-level BPE's piece; pieces of other vocabularies, which say it themselves, as they are."""
    alphabet = _byte_alphabet()
    if not set(piece) <= alphabet.keys() or piece.startswith("<0x"):
        return piece
    return "".join(f"<0x{alphabet[c]:02X}>" for c in piece.removeprefix("Ġ"))


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """The byte that each character stands for in byte-level BPE: printable ones for themselves, the others in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
