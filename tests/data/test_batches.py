import threading
import time
from itertools import pairwise

import numpy as np
import pytest

from t5x_lite.data import batches, evaluation_batches, prefetch
from t5x_lite.errors import InputError

LENGTH = 4


class CountedRows:
    """Row i is filled with i; remembers how it was read."""

    def __init__(self, count):
        self.count = count
        self.reads = []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {"ids": np.full(LENGTH, index, np.int32), "weight": np.float32(index)}

    def __getitems__(self, indices):
        self.reads.append(list(indices))
        return [self[i] for i in indices]


def shares(batch_size, num_hosts):
    """The rows of each host: two neighbours here, two there, as a mesh that follows the wires of a pod has them."""
    pairs = np.arange(batch_size).reshape(-1, 2 if num_hosts < batch_size else 1)
    return [np.concatenate(pairs[host::num_hosts]) for host in range(num_hosts)]


def numbers(batch):
    ids, weight = batch["ids"], batch["weight"]
    assert ids.dtype == np.int32 and (ids == ids[:, :1]).all()
    assert weight.dtype == np.float32 and (weight == ids[:, 0]).all()
    return ids[:, 0].tolist()


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("repeat", [True, False])
@pytest.mark.parametrize("num_hosts", [1, 2, 4])
def test_hosts_share_out_the_global_batch(num_hosts, shuffle, repeat):
    options = {"batch_size": 8, "seed": 3, "shuffle": shuffle, "repeat": repeat}
    everything = batches(CountedRows(45), **options)
    rows_of_hosts = shares(8, num_hosts)
    hosts = [batches(CountedRows(45), local=local, **options) for local in rows_of_hosts]
    for step in (0, 4, *((9, 10**9) if repeat else ())):
        for local, host in zip(rows_of_hosts, hosts, strict=True):
            assert host[step]["ids"].shape == (8 // num_hosts, LENGTH)
            for name, column in everything[step].items():
                np.testing.assert_array_equal(host[step][name], column[local])
    if not repeat:
        assert [len(dataset) for dataset in (everything, *hosts)] == [5] * (num_hosts + 1)


@pytest.mark.parametrize("count", [1, 5, 24, 37])
def test_every_epoch_is_another_permutation(count):
    dataset = batches(CountedRows(count), batch_size=8, seed=0)
    stream = [i for step in range(count) for i in numbers(dataset[step])]
    epochs = [stream[e * count : (e + 1) * count] for e in range(8)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    if count > 20:
        assert len(set(map(tuple, epochs))) == len(epochs)
        assert list(range(count)) not in epochs


def test_seeds_give_unrelated_orders():
    def epochs(seed):
        # The first eight rows of each epoch: Grain's shuffle is slow for few rows.
        dataset = batches(CountedRows(32), batch_size=32, seed=seed, local=range(8))
        return {tuple(numbers(dataset[step])) for step in range(6)}

    assert len(set.union(*(epochs(seed) for seed in range(4)))) == 24
    assert epochs(1) == epochs(1)
    assert epochs(2**64 - 1)


def test_in_order_and_over_the_end():
    dataset = batches(CountedRows(5), batch_size=3, seed=0, shuffle=False)
    assert [numbers(dataset[step]) for step in range(4)] == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1]]
    once = batches(CountedRows(5), batch_size=2, seed=0, shuffle=False, repeat=False)
    assert [numbers(batch) for batch in once] == [[0, 1], [2, 3]]


def test_without_repeat_no_row_comes_twice():
    dataset = batches(CountedRows(45), batch_size=8, seed=1, repeat=False)
    seen = [i for batch in dataset for i in numbers(batch)]
    assert len(seen) == len(set(seen)) == 40


def test_a_batch_is_one_read():
    rows = CountedRows(50)
    batch = batches(rows, batch_size=16, seed=0, local=range(8, 16))[3]
    assert rows.reads == [numbers(batch)]


def test_lists_of_rows_are_rows_too():
    ids = np.arange(40, dtype=np.uint16).reshape(10, 4)
    batch = batches([{"ids": row} for row in ids], batch_size=2, seed=0, shuffle=False)[1]
    np.testing.assert_array_equal(batch["ids"], ids[2:4])


def test_each_batch_has_copies_of_its_rows():
    stream = [numbers(batch) for batch in batches(CountedRows(20), batch_size=4, seed=3, repeat=False)]
    thrice = batches(CountedRows(20), batch_size=12, seed=3, augmentation_repeats=3)
    assert [numbers(thrice[step]) for step in range(5)] == [3 * rows for rows in stream], "an epoch"
    endless = batches(CountedRows(20), batch_size=4, seed=3)
    for step in (5, 10**9):
        assert numbers(thrice[step]) == 3 * numbers(endless[step])
    once = batches(CountedRows(20), batch_size=12, seed=3, augmentation_repeats=3, repeat=False)
    assert [numbers(batch) for batch in once] == [numbers(thrice[step]) for step in range(5)]


def test_copies_that_do_not_fill_a_batch_go_on_in_the_next_one():
    dataset = batches(CountedRows(20), batch_size=8, seed=3, augmentation_repeats=3)
    epoch = [numbers(dataset[step]) for step in range(15)]
    order = [numbers(batches(CountedRows(20), batch_size=40, seed=3)[0])[n : n + 20] for n in (0, 20)]
    for whole, batch in zip((order[0], order[1]), (epoch[:7], epoch[8:]), strict=True):
        assert {row for one in batch for row in one} <= set(whole)
    assert [epoch.count(batch) for batch in epoch] == [1] * 15
    assert all(sum(batch.count(row) for batch in epoch) == 6 for row in range(20)), "two epochs of three copies"
    assert sorted(epoch[0]) == sorted(3 * order[0][:2] + 2 * order[0][2:3])
    assert epoch[1].count(order[0][2]) == 1
    assert all(row != after for batch in epoch for row, after in pairwise([*batch, batch[0]]))


@pytest.mark.parametrize("num_hosts", [1, 2, 4])
@pytest.mark.parametrize("repeats", [2, 3, 8])
def test_hosts_share_out_copies(num_hosts, repeats):
    options = {"batch_size": 8, "seed": 3, "augmentation_repeats": repeats}
    everything = batches(CountedRows(45), **options)
    for local in shares(8, num_hosts):
        rows = CountedRows(45)
        stream = prefetch(batches(rows, local=local, **options), 13, num_threads=1)
        for step in range(13, 17):
            for name, column in next(stream).items():
                np.testing.assert_array_equal(column, everything[step][name][local])
        stream.close()
        assert all(len(set(read)) == len(read) for read in rows.reads), "a row is read once for all its copies"
        assert len(rows.reads[0]) <= -(-8 // repeats) + 1


def test_without_copies_the_order_is_that_of_old_runs():
    dataset = batches(CountedRows(20), batch_size=8, seed=3, augmentation_repeats=1)
    kept = {
        0: [19, 3, 14, 17, 4, 5, 10, 7],
        7: [18, 11, 12, 0, 13, 14, 10, 2],
        10**9: [15, 14, 1, 12, 0, 11, 3, 9],
    }
    assert {step: numbers(dataset[step]) for step in kept} == kept


@pytest.mark.parametrize("start", [0, 7])
def test_prefetch_resumes_at_a_step(start):
    dataset = batches(CountedRows(20), batch_size=8, seed=0)
    stream = prefetch(dataset, start, num_threads=3, buffer_size=4)
    for step in range(start, start + 10):
        assert numbers(next(stream)) == numbers(dataset[step])
    stream.close()


def test_prefetch_ends_with_the_dataset():
    dataset = batches(CountedRows(20), batch_size=8, seed=0, repeat=False)
    assert [numbers(batch) for batch in prefetch(dataset, 1)] == [numbers(dataset[1])]


def test_prefetch_closes_its_threads():
    before = set(threading.enumerate())
    stream = prefetch(batches(CountedRows(20), batch_size=8, seed=0))
    next(stream)
    readers = set(threading.enumerate()) - before
    assert readers
    stream.close()
    for thread in readers:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in readers)


def test_prefetch_passes_errors_on():
    class Broken(CountedRows):
        def __getitems__(self, indices):
            time.sleep(0.001)
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        next(prefetch(batches(Broken(20), batch_size=8, seed=0)))


@pytest.mark.parametrize("num_hosts", [1, 2, 4])
@pytest.mark.parametrize(("count", "limit"), [(1, None), (8, None), (9, None), (21, 13), (21, 100)])
def test_evaluation_counts_every_row_once(count, limit, num_hosts):
    expected = list(range(min(count, limit or count)))
    rows_of_hosts = shares(8, num_hosts)
    hosts = [list(evaluation_batches(CountedRows(count), 8, limit, local=local)) for local in rows_of_hosts]
    assert len({len(host) for host in hosts}) == 1
    seen, order = [], np.argsort(np.concatenate(rows_of_hosts))
    for parts in zip(*hosts, strict=True):
        batches_of_hosts, valid = zip(*parts, strict=True)
        valid = np.concatenate(valid)[order]
        batch = {n: np.concatenate([one[n] for one in batches_of_hosts])[order] for n in ("ids", "weight")}
        assert batch["ids"].shape == (8, LENGTH) and valid.dtype == bool
        assert not any(column[~valid].any() for column in batch.values())
        seen += numbers({name: column[valid] for name, column in batch.items()})
    assert seen == expected


@pytest.mark.parametrize("num_hosts", [1, 2, 4])
def test_rows_in_order_go_on_from_each_other(num_hosts):
    """Each row of the batch reads its own part, from its beginning again after an epoch."""
    rows_of_hosts, order = shares(8, num_hosts), np.argsort(np.concatenate(shares(8, num_hosts)))
    hosts = [batches(CountedRows(45), batch_size=8, seed=3, in_order=True, local=local) for local in rows_of_hosts]
    for step in (0, 1, 4, 5, 5 * 10**9 + 2):
        parts = [host[step] for host in hosts]
        batch = {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}
        assert batch.pop("continues").tolist() == [step % 5 != 0] * 8
        assert numbers(batch) == [row * 5 + step % 5 for row in range(8)]
    once = batches(CountedRows(45), batch_size=8, seed=3, in_order=True, repeat=False)
    assert sorted(n for step in range(len(once)) for n in numbers(once[step])) == list(range(40))


@pytest.mark.parametrize(("count", "limit"), [(1, None), (8, None), (21, None), (21, 13)])
def test_evaluation_in_order_counts_every_row_once(count, limit):
    found = {}
    parts = list(evaluation_batches(CountedRows(count), 8, limit, in_order=True))
    for step, (batch, valid) in enumerate(parts):
        assert batch.pop("continues").tolist() == [step > 0] * 8
        for row in np.flatnonzero(valid):
            found.setdefault(row, []).append(int(batch["ids"][row, 0]))
    seen = [n for row in sorted(found) for n in found[row]]
    assert seen == list(range(min(count, limit or count)))
    assert all(len(numbers) <= len(parts) for numbers in found.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_order": True, "batch_size": 21}, "batch_size=21 exceeds the 20 rows"),
        ({"in_order": True, "augmentation_repeats": 2}, "rows in order do not go with augmentation_repeats=2"),
        ({"local": [7, 8]}, "are not rows of a batch of 8; choose from 0 to 7"),
        ({"local": [-1]}, "are not rows of a batch of 8"),
        ({"local": []}, "are not rows of a batch of 8"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 64, "repeat": False}, "batch_size=64 .* 20 rows"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**64}, "seed="),
        ({"augmentation_repeats": 0}, "augmentation_repeats=0 is out of range; choose 1 to batch_size=8"),
        ({"augmentation_repeats": 9}, "augmentation_repeats=9 is out of range"),
    ],
)
def test_bad_values(change, message):
    with pytest.raises(InputError, match=message):
        batches(CountedRows(20), **{"batch_size": 8, "seed": 0, **change})


def test_bad_evaluations():
    with pytest.raises(InputError, match="limit=0"):
        evaluation_batches(CountedRows(20), 8, 0)
    with pytest.raises(InputError, match="no rows"):
        evaluation_batches(CountedRows(0), 8)
    with pytest.raises(InputError, match="are not rows of a batch of 8"):
        evaluation_batches(CountedRows(20), 8, local=[8])
    with pytest.raises(InputError, match="0 rows"):
        batches(CountedRows(0), batch_size=8, seed=0)
