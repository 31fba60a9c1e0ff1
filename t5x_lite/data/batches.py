"""Batches as a pure function of (seed, step), the same global batch for every number of hosts."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from t5x_lite.data.layouts.base import Row
from t5x_lite.data.stored_rows import MixedRows, read_rows, stack
from t5x_lite.errors import InputError

if TYPE_CHECKING:
    import grain

Batch = dict[str, np.ndarray]
"""Rows side by side: each column with a leading dimension."""


def batches(
    rows: Sequence[Row],
    *,
    batch_size: int,
    seed: int,
    local: Sequence[int] | None = None,
    shuffle: bool = True,
    repeat: bool = True,
    augmentation_repeats: int = 1,
    in_order: bool = False,
    both_ways: bool = False,
) -> "grain.MapDataset":
    """`batches(...)[step]` are this host's rows of global batch `step`: each column with a leading dimension b.

    Every epoch is another permutation of all rows; a batch may cross the end of an epoch. Without `repeat` the dataset
    ends with the last whole batch. Rows of a mixture's parts come at their rates, each part with epochs of its own (see
    `MixedRows.order`); without `repeat` it is one corpus.

    With N `augmentation_repeats` a batch has N copies of each of B / N rows (Hoffer et al. 2020), in this order: 0, 1,
    2, 0, 1, 2 with N = 2 and B = 6, since mixup and cutmix mix neighbours. Where N does not divide B, as in DeiT, some
    copies of a batch's last row are in the next batch.

    Rows `in_order` go on from each other (Dai et al. 2019, section 3.2): of N rows, row b of batch t is row
    ``b (N // B) + t % (N // B)``: each row of the batch reads its own part of the corpus, and rows beyond B times
    N // B are not read. A column more, `continues`, bool [b], is false at the beginning of a part.

    Args:
      rows: `rows.__getitems__` is used where there is one.
      batch_size: B, rows in the global batch.
      seed: of the order, 0 or more.
      local: the numbers of the b rows that this host reads of each global batch; None for all.
      shuffle: False for the rows in order.
      repeat: False for a single epoch.
      augmentation_repeats: N, 1 to B. An epoch takes N times the steps.
      in_order: of every epoch, whatever the seed; goes with neither a mixture nor copies of rows.
      both_ways: of rows in order, the second half of a batch goes from the end of each part to its beginning (Yang et
        al. 2019, section 3.1), which another column tells: `backward`, bool [b].

    Raises:
      InputError: no rows, a number in `local` outside the batch, fewer rows than a batch without `repeat` or
        `in_order`, N out of range, or rows in order of a mixture or of copies.
    """
    import grain

    local = _local_rows(batch_size, local)
    if not 0 <= seed < 1 << 64:
        raise InputError(f"seed={seed} is out of range; choose one from 0 to 2**64 - 1")
    repeats = augmentation_repeats
    if not 1 <= repeats <= batch_size:
        raise InputError(
            f"augmentation_repeats={repeats} is out of range; choose 1 to batch_size={batch_size}, such as 3"
        )
    if not len(rows) or ((in_order or not repeat) and len(rows) * repeats < batch_size):
        raise InputError(f"batch_size={batch_size} exceeds the {len(rows)} rows; give more text or a smaller batch")
    if in_order and (repeats > 1 or isinstance(rows, MixedRows)):
        what = "a mixture" if isinstance(rows, MixedRows) else f"augmentation_repeats={repeats}"
        raise InputError(f"rows in order do not go with {what}; choose one source, and no copies of rows")
    if in_order:
        return _batches_in_order(rows, batch_size, np.array(local), repeat, both_ways)
    # What is shuffled, repeated and batched are row numbers: Grain's own batching reads row by row, which is slower
    # than one read of them all.
    if isinstance(rows, MixedRows) and repeat:
        numbers = rows.order(seed, shuffle=shuffle)
    else:
        numbers = grain.MapDataset.range(len(rows))
        if shuffle:
            # Grain adds the epoch to the seed; hashed, seed 0 in epoch 1 is not seed 1 in epoch 0.
            numbers = numbers.shuffle(seed=int(np.random.SeedSequence(seed).generate_state(1)[0]))
        numbers = numbers.repeat() if repeat else numbers
    # First copies, then second ones: with 2 repeats of 6 rows 0, 2, 4, 1, 3, 5.
    positions = np.argsort(np.arange(batch_size) % repeats, kind="stable")[local].tolist()

    def read(step: int) -> Batch:
        drawn = [(step * batch_size + position) // repeats for position in positions]
        distinct = list(dict.fromkeys(drawn))  # a copy is not read again
        of_drawn = dict(zip(distinct, read_rows(rows, [int(numbers[one]) for one in distinct]), strict=True))
        return stack([of_drawn[one] for one in drawn])

    # An endless order has sys.maxsize rows.
    return grain.MapDataset.range(min(len(numbers) * repeats, sys.maxsize) // batch_size).map(read)


def _batches_in_order(
    rows: Sequence[Row], batch_size: int, local: np.ndarray, repeat: bool, both_ways: bool
) -> "grain.MapDataset":
    import grain

    length = len(rows) // batch_size
    backward = local >= (batch_size + 1) // 2 if both_ways else np.zeros(len(local), bool)

    def read(step: int) -> Batch:
        turn = step % length
        numbers = local * length + np.where(backward, length - 1 - turn, turn)
        batch = stack(read_rows(rows, numbers.tolist())) | {"continues": np.full(len(local), turn != 0)}
        return batch | ({"backward": backward} if both_ways else {})

    return grain.MapDataset.range(sys.maxsize // batch_size if repeat else length).map(read)


def prefetch(
    dataset: "grain.MapDataset", start_step: int = 0, *, num_threads: int = 2, buffer_size: int = 8
) -> Iterator[Batch]:
    """The batches of a dataset from `start_step` on, `buffer_size` of them read ahead by threads, which have ended when
    the iterator's `close()` returns. Those of Grain's iterator may still read then."""
    with ThreadPoolExecutor(num_threads, "read batches") as threads:
        reads: deque[Future[Batch]] = deque()
        try:
            for step in range(start_step, len(dataset)):
                reads.append(threads.submit(dataset.__getitem__, step))
                if len(reads) > buffer_size:
                    yield reads.popleft().result()
            while reads:
                yield reads.popleft().result()
        finally:
            for read in reads:
                read.cancel()


def evaluation_batches(
    rows: Sequence[Row],
    batch_size: int,
    limit: int | None = None,
    *,
    local: Sequence[int] | None = None,
    in_order: bool = False,
) -> Iterator[tuple[Batch, np.ndarray]]:
    """Every row once, or only the first `limit`, the last batch filled up with zeros.

    `rows`, `batch_size`, `local` and `in_order` are those of `batches`; without `in_order` row b of batch t is row
    t B + b, with it b S + t, of S batches. Yields the batch, each column with a leading dimension b, and valid bool
    [b], False where a row is filling; every host yields equally often. Raises `InputError` for no rows, a number in
    `local` outside the batch, or a limit below 1.
    """
    local_rows = np.array(_local_rows(batch_size, local))
    if limit is not None and limit < 1:
        raise InputError(f"limit={limit} leaves no row to evaluate on; choose 1 or more, or None for all")
    if not len(rows):
        raise InputError("there are no rows to evaluate on; give more text or a larger held_out")
    count = len(rows) if limit is None else min(limit, len(rows))

    num_batches = -(-count // batch_size)

    def read(step: int) -> tuple[Batch, np.ndarray]:
        numbers = local_rows * num_batches + step if in_order else step * batch_size + local_rows
        valid = numbers < count
        if valid.all():
            batch = stack(read_rows(rows, numbers.tolist()))
        else:
            batch = {name: np.zeros((len(numbers), *np.shape(value)), value.dtype) for name, value in rows[0].items()}
            if valid.any():
                for name, values in stack(read_rows(rows, numbers[valid].tolist())).items():
                    batch[name][valid] = values
        if in_order:
            batch["continues"] = np.full(len(numbers), step > 0)
        return batch, valid

    return map(read, range(num_batches))


def _local_rows(batch_size: int, local: Sequence[int] | None) -> list[int]:
    if batch_size < 1:
        raise InputError(f"batch_size={batch_size} is too small; choose 1 or more")
    local = list(range(batch_size)) if local is None else [int(row) for row in local]
    if not local or min(local) < 0 or max(local) >= batch_size:
        raise InputError(f"local={local} are not rows of a batch of {batch_size}; choose from 0 to {batch_size - 1}")
    return local
