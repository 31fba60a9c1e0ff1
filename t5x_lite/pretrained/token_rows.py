"""Texts as an encoder reads them: rows of ids between special ones, in batches of few shapes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.data.layouts.base import truncated_lengths
from t5x_lite.errors import InputError

Text = str | tuple[str, str]
"""A text, or two that belong together."""

_SHORTEST = 32  # Rows are padded to this length, twice it, four times it, ..., so that few lengths are compiled.
_MOST_ROWS = 32
_MOST_TOKENS = 8192  # of a batch: the outputs of all layers of a large model for it fill half a gigabyte


@dataclass(frozen=True)
class TokenRow:
    """`[CLS] text [SEP]` in segment 0, or `[CLS] a [SEP] b [SEP]`, where b and its separator are segment 1."""

    ids: list[int]
    segments: list[int]


@dataclass(frozen=True)
class TokenBatch:
    """Some rows side by side, padded; behind them lie rows that repeat the first one and stand for nothing."""

    indices: list[int]
    """Which of the texts the rows are."""
    inputs: Int[np.ndarray, "B L"]
    segments: Int[np.ndarray, "B L"]
    valid: Bool[np.ndarray, "B L"]


def is_one(texts: Any) -> bool:
    """Whether `texts` is a single text or a pair rather than a list of them."""
    return isinstance(texts, str | tuple)


def token_rows(tokenizer: Tokenizer, texts: Any, max_length: int) -> list[TokenRow]:
    """A row for each text of a list, or one for a single text.

    Raises `InputError` for what is no text, an empty one, one of more than `max_length` tokens, and a tokenizer without
    the special tokens of an encoder.
    """
    rows = []
    for name, parts in _encoded(tokenizer, texts):
        row = _marked(tokenizer.vocabulary, parts)
        if len(row.ids) > max_length:
            raise InputError(
                f"{name} has {len(row.ids)} tokens, special ones included, and the model takes "
                f"max_length={max_length}; cut it into shorter texts"
            )
        rows.append(row)
    return rows


def cut_rows(tokenizer: Tokenizer, texts: Any, max_length: int) -> tuple[list[TokenRow], int]:
    """(rows as `token_rows` makes them, how many of them were cut to `max_length`): the longer one of two texts loses a
    token at a time at its end, of equal ones the second."""
    rows, num_cut = [], 0
    for _, parts in _encoded(tokenizer, texts):
        lengths = [len(part) for part in parts]
        kept = truncated_lengths(lengths, max_length - 1 - len(parts))
        num_cut += kept != lengths
        rows.append(_marked(tokenizer.vocabulary, [part[:length] for part, length in zip(parts, kept, strict=True)]))
    return rows, num_cut


def word_rows(
    tokenizer: Tokenizer, sentences: Any, max_length: int
) -> tuple[list[TokenRow], list[list[tuple[int, int]]]]:
    """(rows of sentences that are words already, for each word the row and the position of its first piece).

    Every word is tokenized by itself, as if a blank stood before all but the first; what the tokenizer sees nothing in
    is the unknown token. A sentence that is longer than a row goes on in the next one, between two words.

    Raises `InputError` for what is no list of lists of words, and an empty one.
    """
    vocabulary, rows, places = tokenizer.vocabulary, [], []
    _check_marks(vocabulary)
    given = sentences if isinstance(sentences, list) and sentences else [sentences]
    for sentence in given:
        if not (isinstance(sentence, list) and sentence and all(isinstance(word, str) for word in sentence)):
            raise InputError(f"sentences hold {sentence!r}, which is no list of words; give a list of lists of strings")
    spelled = [" " * (number > 0) + word for sentence in sentences for number, word in enumerate(sentence)]
    encoded = iter(tokenizer.encode_batch(spelled))
    room = max_length - 2
    for sentence in sentences:
        pieces, found = [], []
        for _ in sentence:
            word = next(encoded).tolist()[:room] or [vocabulary.unk_id]
            if len(pieces) + len(word) > room:
                rows.append(_marked(vocabulary, [pieces]))
                pieces = []
            found.append((len(rows), 1 + len(pieces)))
            pieces = pieces + word
        rows.append(_marked(vocabulary, [pieces]))
        places.append(found)
    return rows, places


def _encoded(tokenizer: Tokenizer, texts: Any) -> Iterator[tuple[str, list[list[int]]]]:
    """(name in a message, ids of its part or its two) of each text."""
    _check_marks(tokenizer.vocabulary)
    named = {"the text": texts} if is_one(texts) else {f"texts[{i}]": text for i, text in enumerate(_list(texts))}
    for name, text in named.items():
        parts = [tokenizer.encode(part) for part in _parts(name, text)]
        if not all(parts):
            raise InputError(f"{name}={text!r} holds no token; leave it out, or give it some text")
        yield name, parts


def _marked(vocabulary: Vocabulary, parts: list[list[int]]) -> TokenRow:
    ids, segments = [vocabulary.cls_id], [0]
    for segment, part in enumerate(parts):
        ids += [*part, vocabulary.sep_id]
        segments += [segment] * (len(part) + 1)
    return TokenRow(ids, segments)


def _check_marks(vocabulary: Vocabulary) -> None:
    if vocabulary.cls_id is None or vocabulary.sep_id is None:
        raise InputError(
            "this checkpoint's tokenizer has no [CLS] or [SEP], which stand around an encoder's text; give ids instead"
        )


def token_batches(rows: list[TokenRow], pad_id: int, max_length: int) -> Iterator[TokenBatch]:
    """The rows in batches whose two sizes are powers of two (but for `max_length`), short rows with short ones."""
    by_length: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        by_length.setdefault(min(power(len(row.ids), _SHORTEST), max_length), []).append(index)
    for length, indices in sorted(by_length.items()):
        most = max(1, min(_MOST_ROWS, _MOST_TOKENS // length))
        for start in range(0, len(indices), most):
            taken = indices[start : start + most]
            yield _batch([rows[index] for index in taken], taken, pad_id, min(power(len(taken), 1), most), length)


def padded(rows: list[TokenRow], pad_id: int) -> TokenBatch:
    """All rows as one batch, padded to the longest."""
    length = max(len(row.ids) for row in rows)
    return _batch(rows, list(range(len(rows))), pad_id, len(rows), length)


def _batch(rows: list[TokenRow], indices: list[int], pad_id: int, count: int, length: int) -> TokenBatch:
    inputs = np.full((count, length), pad_id, np.int32)
    segments, valid = np.zeros((count, length), np.int32), np.zeros((count, length), bool)
    for index in range(count):
        row = rows[index if index < len(rows) else 0]
        size = len(row.ids)
        inputs[index, :size], segments[index, :size], valid[index, :size] = row.ids, row.segments, True
    return TokenBatch(indices, inputs, segments, valid)


def _list(texts: Any) -> list[Text]:
    if not isinstance(texts, list):
        raise InputError(f"texts={texts!r} is no text; give a string, a pair (a, b), or a list of them")
    if not texts:
        raise InputError("texts=[] is empty; give one or more")
    return texts


def _parts(name: str, text: Any) -> tuple[str, ...]:
    parts = (text,) if isinstance(text, str) else text
    if not (isinstance(parts, tuple) and len(parts) in (1, 2) and all(isinstance(part, str) for part in parts)):
        raise InputError(f"{name}={text!r} is no text; give a string or a pair (a, b) of strings")
    return parts


def power(number: int, least: int) -> int:
    """The smallest `least * 2**n` that is not below `number`.

    >>> [power(number, 32) for number in (1, 32, 33, 100)]
    [32, 32, 64, 128]
    """
    return least << max(0, (-(-number // least) - 1).bit_length())
