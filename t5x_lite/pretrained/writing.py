"""Rows of ids to what the model writes behind them, and to what it thinks of answers, in batches of few shapes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from t5x_lite.decoding import Method, decode
from t5x_lite.errors import InputError
from t5x_lite.pretrained.token_rows import power

_SHORTEST = 32  # Rows are padded to this length, twice it, four times it, ..., so that few lengths are compiled.
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
    """Some rows side by side, padded; behind them lie rows that repeat the first one and stand for nothing."""

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
            yield RowBatch(indices, count, *padded([rows[index] for index in indices], pad_id, length))


def padded(rows: list[Row], pad_id: int, length: int) -> tuple[Int[np.ndarray, "B M"], Bool[np.ndarray, "B M"]]:
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
        targets, weights = padded([Row("", answers[index], 0) for index in batch.indices], pad_id, length)
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
