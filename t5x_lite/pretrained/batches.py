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
_SHORTEST_ANSWER = 8


@dataclass(frozen=True)
class Row:
    """What the model reads of a text."""

    ids: list[int]
    """What an encoder reads, or what a decoder reads first."""
    segments: list[int] | None = None
    """0 of `[CLS] a [SEP]` and 1 of `b [SEP]` behind it; None means 0 everywhere."""
    valid: list[bool] | None = None
    """False where one of `ids` is padding; None means nowhere."""
    start_id: int = 0
    """What a decoder reads then."""
    name: str = ""
    """How messages call it."""


class Batch(NamedTuple):
    """Some rows side by side, padded behind."""

    ids: Int[np.ndarray, "B L"]
    segments: Int[np.ndarray, "B L"]
    valid: Bool[np.ndarray, "B L"]
    """Where `ids` are not padding."""


def is_one(texts: Any) -> bool:
    """Whether `texts` is a single text or a pair rather than a list of them."""
    return isinstance(texts, str | tuple)


def named_texts(texts: Any, *, pairs: bool = False) -> dict[str, Any]:
    """Each text under the name that messages call it by; of a single one `the text`.

    Raises `InputError` for what is neither a text nor a list of texts, and for an empty list. With `pairs` a tuple is
    one text of one or two parts, else a list.
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


def token_rows(tokenizer: Tokenizer, texts: Any, max_length: int) -> list[Row]:
    """A row for each text of a list, or one for a single text.

    Raises `InputError` for what is not a text, an empty one, one of more than `max_length` tokens, and a tokenizer
    without the special tokens of an encoder.
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


def cut_rows(tokenizer: Tokenizer, texts: Any, max_length: int) -> tuple[list[Row], int]:
    """(rows as `token_rows` makes them, how many of them were cut to `max_length`): the longer one of two texts loses a
    token at a time at its end, of equal ones the second."""
    rows, num_cut = [], 0
    for _, parts in _encoded(tokenizer, texts):
        lengths = [len(part) for part in parts]
        kept = truncated_lengths(lengths, max_length - 1 - len(parts))
        num_cut += kept != lengths
        rows.append(_marked(tokenizer.vocabulary, [part[:length] for part, length in zip(parts, kept, strict=True)]))
    return rows, num_cut


def word_rows(tokenizer: Tokenizer, sentences: Any, max_length: int) -> tuple[list[Row], list[list[tuple[int, int]]]]:
    """(rows of sentences that are words already, for each word the row and the position of its first piece).

    Every word is tokenized by itself, as if a blank stood before all but the first; what the tokenizer sees nothing in
    is the unknown token. A sentence that is longer than a row goes on in the next one, between two words.

    Raises `InputError` for what is not a list of lists of words, and an empty one.
    """
    vocabulary, rows, positions = tokenizer.vocabulary, [], []
    _check_marks(vocabulary)
    given = sentences if isinstance(sentences, list) and sentences else [sentences]
    for sentence in given:
        if not (isinstance(sentence, list) and sentence and all(isinstance(word, str) for word in sentence)):
            raise InputError(f"sentences hold {sentence!r}, not a list of words; give a list of lists of strings")
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
        positions.append(found)
    return rows, positions


def _encoded(tokenizer: Tokenizer, texts: Any) -> Iterator[tuple[str, list[list[int]]]]:
    """(name in a message, ids of its part or its two) of each text."""
    _check_marks(tokenizer.vocabulary)
    for name, text in named_texts(texts, pairs=True).items():
        parts = (text,) if isinstance(text, str) else text
        encoded = [tokenizer.encode(part) for part in parts]
        if not all(encoded):
            raise InputError(f"{name}={text!r} holds no token; leave it out, or give it some text")
        yield name, encoded


def _marked(vocabulary: Vocabulary, parts: list[list[int]]) -> Row:
    sizes = [len(part) + 1 for part in parts]
    ids = SpecialIds.of(vocabulary).join(1 + sum(sizes), *map(np.asarray, parts))
    return Row(ids.tolist(), [0, *np.repeat(range(len(parts)), sizes).tolist()])


def _check_marks(vocabulary: Vocabulary) -> None:
    if vocabulary.cls_id is None or vocabulary.sep_id is None:
        raise InputError(
            "this checkpoint's tokenizer has no [CLS] or [SEP], which stand around an encoder's text; give ids instead"
        )


def row_batches(
    rows: list[Row], *, pad_id: int, longest: int | None, most_rows: int = 32, most_tokens: int | None = None
) -> Iterator[tuple[list[int], Batch]]:
    """(which rows they are, the rows) of batches whose two sizes are powers of two, short rows with short ones.

    Rows that repeat the first one of a batch fill it up, and their indices with them.

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
    for length, found in sorted(by_length.items()):
        most = most_rows if most_tokens is None else max(1, min(most_rows, most_tokens // length))
        for start in range(0, len(found), most):
            indices = found[start : start + most]
            indices += indices[:1] * (min(power(len(indices), 1), most) - len(indices))
            yield indices, pad_rows([rows[index] for index in indices], pad_id, length)


def pad_rows(rows: list[Row], pad_id: int, length: int | None = None) -> Batch:
    """Rows padded behind to a length, or to the longest."""
    length = max(len(row.ids) for row in rows) if length is None else length
    ids = np.full((len(rows), length), pad_id, np.int32)
    segments, valid = np.zeros_like(ids), np.zeros(ids.shape, bool)
    for index, row in enumerate(rows):
        size = len(row.ids)
        ids[index, :size] = row.ids
        segments[index, :size] = 0 if row.segments is None else row.segments
        valid[index, :size] = True if row.valid is None else row.valid
    return Batch(ids, segments, valid)


def power(number: int, least: int) -> int:
    """The smallest `least * 2**n` that is not below `number`.

    >>> [power(number, 32) for number in (1, 32, 33, 100)]
    [32, 32, 64, 128]
    """
    return least << max(0, (-(-number // least) - 1).bit_length())


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
    for indices, batch in row_batches(rows, pad_id=pad_id, most_rows=batch_size, longest=longest):
        ids[indices], scores[indices] = decode(
            module,
            params,
            jnp.asarray(batch.ids),
            method=method,
            start_ids=jnp.array([rows[index].start_id for index in indices], jnp.int32),
            max_length=max_length,
            inputs_valid=jnp.asarray(batch.valid),
            pad_id=pad_id,
            key=jax.random.key(seed),
            rows=jnp.array(indices, jnp.int32),
            **limits,
        )
        if progress:
            progress(len(set(indices)))
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
    totals = np.zeros(len(answers), np.float32)
    for indices, batch in row_batches(
        [row] * len(answers), pad_id=pad_id, most_rows=batch_size, longest=longest(length)
    ):
        targets, _, weights = pad_rows([Row(answers[index]) for index in indices], pad_id, length)
        decoder_inputs = np.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=row.start_id)
        totals[indices] = _log_probabilities(module, params, batch, decoder_inputs, targets, weights)
    return totals.tolist()


@partial(jax.jit, static_argnums=0)
def _log_probabilities(
    module: nn.Module,
    params: Any,
    batch: Batch,
    decoder_inputs: Int[Array, "B L"],
    targets: Int[Array, "B L"],
    weights: Bool[Array, "B L"],
) -> Float[Array, "B"]:
    logits = apply_model(module, params, batch.ids, decoder_inputs, inputs_valid=batch.valid)
    of_targets = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), targets[..., None], axis=-1)[..., 0]
    return jnp.where(weights, of_targets, 0.0).sum(axis=1)


@partial(jax.jit, static_argnums=0)
def apply_model(module: nn.Module, params: Any, *ids: Int[Array, "B _"], inputs_valid: Bool[Array, "B _"]) -> Any:
    """What calling the module gives, compiled."""
    return module.apply({"params": params}, *ids, inputs_valid=inputs_valid)
