"""Texts as rows of ids, rows in batches of few shapes, and decoding and scoring batch by batch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.data.layouts.base import SpecialIds, truncated_lengths
from t5x_lite.decoding import Method, decode
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
    """Some rows side by side, padded; rows that repeat the first one fill up the batch."""

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
    formatted = [" " * (number > 0) + word for sentence in sentences for number, word in enumerate(sentence)]
    encoded = iter(tokenizer.encode_batch(formatted))
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
    sizes = [len(part) + 1 for part in parts]
    ids = SpecialIds.of(vocabulary).join(1 + sum(sizes), *map(np.asarray, parts))
    return TokenRow(ids.tolist(), [0, *np.repeat(range(len(parts)), sizes).tolist()])


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


def pad_token_rows(rows: list[TokenRow], pad_id: int) -> TokenBatch:
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


_SHORTEST_ANSWER = 8


@dataclass(frozen=True)
class Row:
    """What the model reads of a prompt before it writes."""

    name: str
    """How messages call it."""
    ids: list[int]
    """What an encoder reads, or what a decoder reads first."""
    start_id: int
    """What the decoder reads then."""
    valid: list[bool] | None = None
    """False where one of `ids` is padding; None means nowhere."""


class RowBatch(NamedTuple):
    """Some rows side by side, padded; rows that repeat the first one fill up the batch."""

    indices: list[int]
    """Which rows they are."""
    count: int
    """Rows that stand for something."""
    ids: Int[np.ndarray, "B M"]
    valid: Bool[np.ndarray, "B M"]


def row_batches(rows: list[Row], *, pad_id: int, most_rows: int, longest: int | None) -> Iterator[RowBatch]:
    """The rows in batches whose two sizes are powers of two (but for `longest` and `most_rows`), short with short."""
    if most_rows < 1:
        raise InputError(f"batch_size={most_rows} is too small; choose 1 or more")
    by_length: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        length = power(max(len(row.ids), 1), _SHORTEST)
        by_length.setdefault(length if longest is None else min(length, longest), []).append(index)
    for length, found in sorted(by_length.items()):
        for start in range(0, len(found), most_rows):
            indices = found[start : start + most_rows]
            count = len(indices)
            indices += indices[:1] * (min(power(count, 1), most_rows) - count)
            yield RowBatch(indices, count, *pad_rows([rows[index] for index in indices], pad_id, length))


def pad_rows(rows: list[Row], pad_id: int, length: int) -> tuple[Int[np.ndarray, "B M"], Bool[np.ndarray, "B M"]]:
    """(ids, where they are no padding) of rows, padded behind."""
    ids, valid = np.full((len(rows), length), pad_id, np.int32), np.zeros((len(rows), length), bool)
    for place, row in enumerate(rows):
        size = len(row.ids)
        ids[place, :size] = row.ids
        valid[place, :size] = True if row.valid is None else row.valid
    return ids, valid


def write_rows(
    module: nn.Module,
    params: Any,
    rows: list[Row],
    *,
    method: Method,
    max_length: int,
    pad_id: int,
    seed: int,
    batch_size: int,
    longest: int | None,
    progress: Callable[[int], Any] | None = None,
    **limits: Any,
) -> tuple[Int[np.ndarray, "B N L"], Float[np.ndarray, "B N"]]:
    """(ids, scores) of what is written behind each row.

    Args:
      seed: of sampling.
      batch_size: rows that are decoded together.
      longest: rows are padded to no more than this; None means to any length.
      progress: is called with the number of rows finished since it was called last.
      limits: the others of `decode`.
    """
    shape = (len(rows), method.num_results)
    ids, scores = np.full((*shape, max_length), pad_id, np.int32), np.zeros(shape, np.float32)
    for batch in row_batches(rows, pad_id=pad_id, most_rows=batch_size, longest=longest):
        decoded = decode(
            module,
            params,
            jnp.asarray(batch.ids),
            method=method,
            start_ids=jnp.array([rows[index].start_id for index in batch.indices], jnp.int32),
            max_length=max_length,
            inputs_valid=jnp.asarray(batch.valid),
            pad_id=pad_id,
            key=jax.random.key(seed),
            rows=jnp.array(batch.indices, jnp.int32),
            **limits,
        )
        places = batch.indices[: batch.count]
        ids[places], scores[places] = (np.asarray(x)[: batch.count] for x in decoded)
        if progress:
            progress(batch.count)
    return ids, scores


def score_answers(
    module: nn.Module,
    params: Any,
    row: Row,
    answers: list[list[int]],
    *,
    pad_id: int,
    batch_size: int,
    room: int | None,
    longest: Callable[[int], int | None],
) -> list[float]:
    """The log-probability of each answer behind the row.

    Args:
      room: answers are padded to no more than this; None means to any length.
      longest: what the row is padded to at most, given the length of the answers.
    """
    length = power(max(map(len, answers)), _SHORTEST_ANSWER)
    length = length if room is None else min(length, room)
    totals: list[float] = []
    for batch in row_batches([row] * len(answers), pad_id=pad_id, most_rows=batch_size, longest=longest(length)):
        targets, weights = pad_rows([Row("", answers[index], 0) for index in batch.indices], pad_id, length)
        decoder_inputs = np.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=row.start_id)
        found = _log_probabilities(module, params, batch.ids, batch.valid, decoder_inputs, targets, weights)
        totals += np.asarray(found)[: batch.count].tolist()
    return totals


@partial(jax.jit, static_argnums=0)
def _log_probabilities(
    module: nn.Module,
    params: Any,
    inputs: Int[Array, "B M"],
    inputs_valid: Bool[Array, "B M"],
    decoder_inputs: Int[Array, "B L"],
    targets: Int[Array, "B L"],
    weights: Bool[Array, "B L"],
) -> Float[Array, "B"]:
    logits = module.apply({"params": params}, inputs, decoder_inputs, inputs_valid=inputs_valid)
    of_targets = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), targets[..., None], axis=-1)[..., 0]
    return jnp.where(weights, of_targets, 0.0).sum(axis=1)
