"""What a prepared store or tokenizer leaves on disk when it is interrupted, killed, damaged, or made twice at once."""

import errno
import os
import signal
import threading
from pathlib import Path

import pytest

from t5x_lite.data import Bytes, Data, SentencePiece, Stream, TextFiles, splits, write_store

ROWS = Stream(32)


def prepare(source, config, layout, *, cache_dir, tokenizer=None, progress=None, **options):
    data = Data(source, config, cache_dir=str(cache_dir), **options)
    return data.prepare(layout, tokenizer=tokenizer, progress=progress)


def ids_of(rows) -> list[int]:
    return [int(i) for row in rows for i in row["ids"]]


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory) -> list[int]:
    """The ids of the training rows."""
    return ids_of(prepare(corpus, Bytes(), ROWS, held_out=0.1, cache_dir=tmp_path_factory.mktemp("cache")).train)


def test_a_damaged_store_or_tokenizer_is_made_anew(corpus, tmp_path):
    def run():
        return prepare(corpus, SentencePiece(vocab_size=100), ROWS, held_out=0.1, cache_dir=tmp_path)

    made = run()
    before = ids_of(made.train)
    shard = next(made.path.glob("*train*"))
    shard.write_bytes(shard.read_bytes()[:100])
    (model,) = (tmp_path / "tokenizers").glob("*/spiece.model")
    model.unlink()
    assert ids_of(run().train) == before
    assert model.exists()


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in (folder / "stores").iterdir()]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_an_interrupted_prepare_leaves_nothing(corpus, undisturbed, tmp_path, monkeypatch, error):
    monkeypatch.setattr(splits, "_CHUNK_CHARACTERS", 500)
    seen = []

    def interrupt(stage, fraction):
        if stage == "tokenize" and fraction > 0.5:
            seen.extend(path for path in (tmp_path / "stores").rglob("*") if path.is_file())
            raise error

    options = {"held_out": 0.1, "cache_dir": tmp_path}
    with pytest.raises(error if isinstance(error, type) else type(error)):
        prepare(corpus, Bytes(), ROWS, progress=interrupt, **options)
    assert seen, "it was interrupted while files were there"
    assert leftovers(tmp_path) == []
    assert ids_of(prepare(corpus, Bytes(), ROWS, **options).train) == undisturbed


def test_a_full_disk_seen_by_tensorstore_is_an_oserror(corpus, tmp_path, monkeypatch):
    def fail(self, rows):
        raise ValueError(
            "RESOURCE_EXHAUSTED: Failed to write 3142852 bytes: No space left on device [os_error_code='28']"
        )

    monkeypatch.setattr(write_store.RowWriter, "add", fail)
    with pytest.raises(OSError) as raised:
        prepare(corpus, Bytes(), ROWS, held_out=0.1, cache_dir=tmp_path)
    assert raised.value.errno == errno.ENOSPC
    assert leftovers(tmp_path) == []


KILLED = """
import os, signal, sys
from t5x_lite.data import Bytes, Data, Stream, TextFiles, splits
splits._CHUNK_CHARACTERS = 500
def die(stage, fraction):
    if stage == "tokenize" and fraction > 0.5:
        os.kill(os.getpid(), signal.SIGKILL)
data = Data(TextFiles((sys.argv[1],)), Bytes(), held_out=0.1, cache_dir=sys.argv[2])
data.prepare(Stream(32), progress=die)
"""


def test_a_killed_prepare_leaves_nothing_that_is_read(corpus, undisturbed, run_python, tmp_path):
    path, cache = tmp_path / "text.txt", tmp_path / "cache"
    path.write_text("\n".join(corpus.texts))
    killed = run_python(KILLED, path, cache)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (remains,) = leftovers(cache)
    assert remains.startswith(".tmp-")
    # Somebody else's work in progress, and one of a process that lives, must stay.
    others = [".tmp-x-another_machine-1-00000000", f"{remains.rsplit('-', 2)[0]}-{os.getpid()}-00000000"]
    for name in others:
        (cache / "stores" / name).mkdir()
    made = prepare(TextFiles((str(path),)), Bytes(), ROWS, held_out=0.1, cache_dir=cache)
    assert ids_of(made.train) == undisturbed
    assert sorted(leftovers(cache)) == sorted([made.key, *others])


def test_two_that_prepare_the_same_at_once_both_end_well(corpus, tmp_path):
    together = threading.Barrier(2, timeout=60)
    results = []

    def wait(stage, fraction):
        if fraction == 1.0:
            together.wait()

    def run():
        results.append(prepare(corpus, Bytes(), ROWS, held_out=0.1, cache_dir=tmp_path, progress=wait))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert ids_of(results[0].train) == ids_of(results[1].train)
    assert leftovers(tmp_path) == [results[0].key]
