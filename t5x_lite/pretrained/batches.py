"""Texts as rows of ids, and functions of rows that run batch by batch, in few shapes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Int

from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.data.layouts.base import SpecialIds, encode_each, truncated_lengths, with_blanks
from t5x_lite.errors import InputError

Text = str | tuple[str, str]
"""A text, or two that belong together."""

_SHORTEST = 32  # Rows are padded to this length, twice it, four times it, ..., so that few lengths are compiled.


@dataclass(frozen=True)
class Row:
    """What the model reads of a text."""

    ids: list[int]
    """What an encoder reads, or what a decoder reads first."""
    segments: list[int] | None = None
    """0 in `[CLS] a [SEP]` and 1 in the `b [SEP]` after it; None means 0 everywhere."""
    valid: list[bool] | None = None
    """False where one of `ids` is padding; None means nowhere."""
    start_id: int = 0
    """What a decoder reads then."""


class Batch(NamedTuple):
    """Rows side by side, padded at their ends."""

    ids: Int[np.ndarray, "B L"]
    segments: Int[np.ndarray, "B L"]
    valid: Bool[np.ndarray, "B L"]
    """Where `ids` are not padding."""


def is_one(texts: Any) -> bool:
    """Whether `texts` is a single text or a pair rather than a list of them."""
    return isinstance(texts, str | tuple)


def named_texts(texts: Any, *, pairs: bool = False) -> dict[str, Any]:
    """Each text by the name that messages give it, `the text` for a single one; with `pairs` a tuple is one text.

    Raises `InputError` for what is neither a text nor a list of texts, and for an empty list.
    """
    one = "a string or a pair (a, b) of strings" if pairs else "a string"
    if isinstance(texts, str) or (pairs and isinstance(texts, tuple)):
        named = {"the text": texts}
    elif not isinstance(texts, list | tuple):
        raise InputError(f"texts={texts!r} is not a text; give {one}, or a list of them")
    elif not texts:
        raise InputError("texts=[] is empty; give one or more")
    else:
        named = {f"texts[{index}]": text for index, text in enumerate(texts)}
    for name, text in named.items():
        parts = text if pairs and isinstance(text, tuple) else (text,)
        if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in parts):
            raise InputError(f"{name}={text!r} is not a text; give {one}")
    return named


def check_ids(
    values: Any, size: int, *, name: str = "ids", shape: tuple[int, int] | None = None
) -> Int[Array, "B L"] | Int[np.ndarray, "B L"]:
    """Rows of ids as they are given to a model, or of segments, as an array.

    Raises `InputError` for what is not a rectangle of integers, or not one of `shape`, and for values outside
    0..size-1, for which a look-up would give NaN or another row.
    """
    if isinstance(values, jax.core.Tracer):  # inside a function that is compiled values are not known
        return values
    try:
        ids = np.asarray(values)
    except ValueError:
        raise InputError(f"{name} are rows of several lengths; pad them to one") from None
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or (shape and ids.shape != shape):
        wanted = "[B, L]" if shape is None else f"{list(shape)}, as the ids"
        raise InputError(f"{name} of shape {ids.shape} and type {ids.dtype} are not rows; give integers {wanted}")
    if ids.size and not 0 <= ids.min() <= ids.max() < size:
        outside = ids.min() if ids.min() < 0 else ids.max()
        raise InputError(f"{name} hold {outside}, and the model has 0 to {size - 1}; give those alone")
    return ids


def special_ids_of(vocabulary: Vocabulary) -> SpecialIds:
    """Those around an encoder's text; `InputError` for a tokenizer without them."""
    if vocabulary.cls_id is None or vocabulary.sep_id is None:
        raise InputError(
            "this checkpoint's tokenizer has no [CLS] or [SEP], which stand around an encoder's text; give ids instead"
        )
    return SpecialIds.of(vocabulary)


def token_rows(tokenizer: Tokenizer, texts: Any, max_length: int, special: SpecialIds | None = None) -> list[Row]:
    """A row for each text of a list, or one for a single text, within `special`, by default `special_ids_of`.

    Raises `InputError` for what is not a text, an empty one, one of more than `max_length` tokens, and a tokenizer
    without the special tokens of an encoder.
    """
    rows, special = [], special or special_ids_of(tokenizer.vocabulary)
    for name, parts in _encoded(tokenizer, texts):
        rows.append(_join(special, parts))
        if len(rows[-1].ids) > max_length:
            raise InputError(
                f"{name} has {len(rows[-1].ids)} tokens, special ones included, and the model takes "
                f"max_length={max_length}; cut it into shorter texts"
            )
    return rows


def cut_rows(
    tokenizer: Tokenizer, texts: Any, max_length: int, special: SpecialIds | None = None
) -> tuple[list[Row], int]:
    """(rows as from `token_rows`, how many of them were cut to `max_length`, see `truncated_lengths`)."""
    rows, num_cut, special = [], 0, special or special_ids_of(tokenizer.vocabulary)
    for _, parts in _encoded(tokenizer, texts):
        lengths = [len(part) for part in parts]
        kept = truncated_lengths(lengths, max_length - special.count(len(parts)))
        num_cut += kept != lengths
        rows.append(_join(special, [part[:length] for part, length in zip(parts, kept, strict=True)]))
    return rows, num_cut


def word_rows(
    tokenizer: Tokenizer, sentences: Any, max_length: int, special: SpecialIds | None = None
) -> tuple[list[Row], list[list[tuple[int, int]]]]:
    """(rows of sentences given as words, for each word the row and the position of its first piece).

    Every word is tokenized by itself, as if a blank stood before all but the first; one in which the tokenizer sees
    nothing becomes the unknown token. A sentence longer than a row continues in the next one, between two words.

    Raises `InputError` for what is not a list of lists of words, and an empty one.
    """
    for sentence in sentences if isinstance(sentences, list) and sentences else [sentences]:
        if not (isinstance(sentence, list) and sentence and all(isinstance(word, str) for word in sentence)):
            raise InputError(f"sentences hold {sentence!r}, not a list of words; give a list of lists of strings")
    special, rows, positions = special or special_ids_of(tokenizer.vocabulary), [], []
    room, first = max_length - special.count(1), special.start()
    for words in encode_each(list(map(with_blanks, sentences)), tokenizer):
        pieces, of_words = [], []
        for ids in words:
            word = ids.tolist()[:room] or [tokenizer.vocabulary.unk_id]
            if len(pieces) + len(word) > room:
                rows.append(_join(special, [pieces]))
                pieces = []
            of_words.append((len(rows), first + len(pieces)))
            pieces = pieces + word
        rows.append(_join(special, [pieces]))
        positions.append(of_words)
    return rows, positions


def _encoded(tokenizer: Tokenizer, texts: Any) -> Iterator[tuple[str, list[list[int]]]]:
    """(name in a message, ids of the text or of both) for each text."""
    for name, text in named_texts(texts, pairs=True).items():
        encoded = [tokenizer.encode(part) for part in ((text,) if isinstance(text, str) else text)]
        if not all(encoded):
            raise InputError(f"{name}={text!r} holds no token; leave it out, or give it some text")
        yield name, encoded


def _join(special: SpecialIds, parts: list[list[int]]) -> Row:
    size = special.count(len(parts)) + sum(map(len, parts))
    ids = special.join(size, *map(np.asarray, parts))
    return Row(ids.tolist(), special.segments(*map(len, parts)))


def map_rows(function: Callable[[list[int], Batch], Any], rows: list[Row], **options: Any) -> list[Any]:
    """For each row its part of the arrays [B ...] that `function(indices, batch)` gives; options: see `row_batches`."""
    results: list[Any] = [None] * len(rows)
    for indices, batch in row_batches(rows, **options):
        outputs = jax.device_get(function(indices, batch))
        for position, index in enumerate(indices):
            results[index] = jax.tree.map(itemgetter(position), outputs)
    return results


def row_batches(
    rows: list[Row], *, pad_id: int, longest: int | None, most_rows: int = 32, most_tokens: int | None = None
) -> Iterator[tuple[list[int], Batch]]:
    """(indices of the rows, the rows) of batches whose two sizes are powers of two, short rows with short ones.

    The first row of a batch is repeated to fill it up, and its index too.

    Args:
      longest: rows are padded to no more than this; None means to any length.
      most_rows: of a batch.
      most_tokens: of a batch, unless a single row has more.
    """
    if most_rows < 1:
        raise InputError(f"batch_size={most_rows} is too small; choose 1 or more")
    by_length: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        length = power(max(len(row.ids), 1), _SHORTEST)
        by_length.setdefault(length if longest is None else min(length, longest), []).append(index)
    for length, of_length in sorted(by_length.items()):
        most = most_rows if most_tokens is None else max(1, min(most_rows, most_tokens // length))
        for start in range(0, len(of_length), most):
            indices = of_length[start : start + most]
            indices += indices[:1] * (min(power(len(indices), 1), most) - len(indices))
            yield indices, pad_rows([rows[index] for index in indices], pad_id, length)


def pad_rows(rows: list[Row], pad_id: int, length: int | None = None) -> Batch:
    """Rows padded at their ends to a length, or to the longest."""
    length = max(len(row.ids) for row in rows) if length is None else length
    ids = np.full((len(rows), length), pad_id, np.int32)
    segments, valid = np.zeros_like(ids), np.zeros(ids.shape, bool)
    for index, row in enumerate(rows):
        size = len(row.ids)
        ids[index, :size] = row.ids
        segments[index, :size] = 0 if row.segments is None else row.segments
        valid[index, :size] = True if row.valid is None else row.valid
    return Batch(ids, segments, valid)


def padded_row(row: Row, pad_id: int, longest: int | None) -> Batch:
    """A batch of one row, see `row_batches`."""
    return next(batch for _, batch in row_batches([row], pad_id=pad_id, longest=longest))


def power(number: int, least: int) -> int:
    """The smallest `least * 2**n` that is not below `number`.

    >>> [power(number, 32) for number in (1, 32, 33, 100)]
    [32, 32, 64, 128]
    """
    return least << max(0, (-(-number // least) - 1).bit_length())


@partial(jax.jit, static_argnums=0)
def apply_model(module: nn.Module, params: Any, *ids: Int[Array, "B _"], inputs_valid: Bool[Array, "B _"]) -> Any:
    """What calling the module gives, compiled."""
    return module.apply({"params": params}, *ids, inputs_valid=inputs_valid)
