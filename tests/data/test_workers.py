"""A corpus of several shards: the same tokenizer and rows whoever makes them, and after whatever."""

import gzip
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from t5x_lite.cli.main import load_module
from t5x_lite.data import (
    Bytes,
    Data,
    JoinedRecords,
    JsonlFiles,
    LabeledTexts,
    Mixture,
    Part,
    SentencePiece,
    Stream,
    TextFiles,
    WordPiece,
    write_store,
)
from t5x_lite.data.layouts.text import Sentences
from t5x_lite.data.records import input_files
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.tokenizers import training

from ..slow import mostly_slow

SHARDS = 4


@pytest.fixture
def folder(tmp_path, monkeypatch, corpus) -> Path:
    """Files like C4's, each a shard of its own, and one of blank lines."""
    monkeypatch.setattr(input_files, "_SHARD_BYTES", 1)
    for number in range(SHARDS):
        with gzip.open(tmp_path / f"c4.{number:05d}.json.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in corpus.texts[number::SHARDS])
    (tmp_path / "c4.99999.json").write_text("\n\n")
    return tmp_path


def texts(folder: Path) -> TextFiles:
    return TextFiles((str(folder / "c4.*"),))


def contents(store) -> dict[str, bytes]:
    return {str(path.relative_to(store.path)): path.read_bytes() for path in store.path.rglob("*") if path.is_file()}


def test_shards_are_the_corpus_in_order(folder, corpus):
    source = texts(folder)
    shards = source.shards()
    assert len(shards) == SHARDS + 1
    read = [text for shard in shards[:-1] for text in shard.documents()]
    assert read == list(source.documents()) and sorted(read) == sorted(corpus.texts)
    joined = JoinedRecords((source, TextFiles((shards[0].paths[0],))))
    assert [shard.paths for shard in joined.shards()] == [shard.paths for shard in (*shards, shards[0])]
    labeled = LabeledTexts(JsonlFiles(source.paths), ("text",), label="")
    assert [len(list(shard.documents())) for shard in labeled.shards()[:-1]] == [100] * SHARDS


def test_small_files_are_one_shard(folder, monkeypatch):
    monkeypatch.setattr(input_files, "_SHARD_BYTES", 1 << 20)
    assert texts(folder).shards() == [texts(folder)]


@pytest.mark.parametrize("layout", mostly_slow([Stream(32), Sentences(32)], Stream(32)), ids=str)
def test_any_number_of_workers_writes_the_same(folder, tmp_path, layout):
    config = WordPiece(vocab_size=200)
    stores = [
        Data(texts(folder), config, held_out=0.1, cache_dir=str(tmp_path / f"cache{workers}")).prepare(
            layout, workers=workers
        )
        for workers in (1, 3)
    ]
    first, second = map(contents, stores)
    assert first == second and stores[0].key == stores[1].key
    assert not any(name.endswith(".npz") for name in first)
    documents = [sum(figures.documents for figures in store.figures.values()) for store in stores]
    assert documents == [400, 400]


def test_rows_are_those_of_the_shards(folder, tmp_path):
    """Each shard's rows are made as if it were alone; which documents are held out is a matter of all."""
    held = texts(folder)
    data = Data(held, Bytes(), held_out_source=TextFiles((str(folder / "c4.00000.json.gz"),)), cache_dir=str(tmp_path))
    store = data.prepare(Stream(32))
    alone = [replace(data, source=shard).prepare(Stream(32)).train[:] for shard in held.shards()[:-1]]
    np.testing.assert_array_equal(stack(store.train[:])["ids"], np.concatenate([stack(rows)["ids"] for rows in alone]))


def test_the_held_out_documents_are_read_again(folder, tmp_path):
    store = Data(texts(folder), Bytes(), held_out=0.1, cache_dir=str(tmp_path)).prepare(Stream(32))
    documents = list(store.held_out_documents())
    assert len(documents) == store.figures["held_out"].documents > 10
    text = store.tokenizer.decode(np.concatenate([row["ids"] for row in store.held_out]))
    assert "".join(documents).startswith(text[:300])


KILLED = """
import os, signal, sys
from t5x_lite.data import Bytes, Data, Stream, TextFiles, write_store
from t5x_lite.data.records import input_files
input_files._SHARD_BYTES = 1
done = write_store._write_shard
def die(task, number, report):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return done(task, number, report)
write_store._write_shard = die
Data(TextFiles((sys.argv[1],)), Bytes(), held_out=0.1, cache_dir=sys.argv[2]).prepare(Stream(32))
"""


def test_what_is_done_is_not_done_again_after_a_kill(folder, tmp_path, run_python, monkeypatch):
    paths, cache = str(folder / "c4.*"), tmp_path / "cache"
    killed = run_python(KILLED, paths, cache)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    seen, write = [], write_store._write_shard
    spy = lambda task, number, report: seen.append(number) or write(task, number, report)  # noqa: E731
    monkeypatch.setattr(write_store, "_write_shard", spy)
    monkeypatch.setattr(write_store, "_hash_shard", None)
    store = Data(TextFiles((paths,)), Bytes(), held_out=0.1, cache_dir=str(cache)).prepare(Stream(32))
    assert seen == [2, 3, 4]
    monkeypatch.undo()
    monkeypatch.setattr(input_files, "_SHARD_BYTES", 1)
    other = str(tmp_path / "other")
    undisturbed = Data(TextFiles((paths,)), Bytes(), held_out=0.1, cache_dir=other).prepare(Stream(32))
    assert contents(store) == contents(undisturbed)
    assert [path.name for path in (cache / "stores").iterdir()] == [store.key]


def test_a_damaged_result_of_a_shard_is_made_again(folder, tmp_path, run_python):
    paths, cache = str(folder / "c4.*"), tmp_path / "cache"
    run_python(KILLED, paths, cache)
    for number, path in enumerate(sorted((cache / "stores").rglob("*.npz"))):
        path.write_bytes(path.read_bytes()[: 40 * (number % 3)])
    store = Data(TextFiles((paths,)), Bytes(), held_out=0.1, cache_dir=str(cache)).prepare(Stream(32))
    other = str(tmp_path / "other")
    undisturbed = Data(TextFiles((paths,)), Bytes(), held_out=0.1, cache_dir=other).prepare(Stream(32))
    assert contents(store) == contents(undisturbed)


def test_an_error_in_a_worker_is_one_sentence(folder, tmp_path):
    with gzip.open(folder / "c4.00002.json.gz", "at") as file:
        file.write("{\n")
    data = Data(texts(folder), Bytes(), held_out=0.1, cache_dir=str(tmp_path / "cache"))
    for workers in (1, 2):
        with pytest.raises(InputError, match=r"c4\.00002\.json\.gz:101 is not JSON"):
            data.prepare(Stream(32), workers=workers)


def test_a_corpus_of_blank_shards_alone(folder, tmp_path):
    (folder / "c4.99998.json").write_text("\n")
    data = Data(TextFiles((str(folder / "c4.9999*"),)), Bytes(), held_out=0.1, cache_dir=str(tmp_path / "cache"))
    with pytest.raises(InputError, match="hold no text but blanks"):
        data.prepare(Stream(32))


OWN = """
from dataclasses import dataclass
from t5x_lite.data import TextFiles
@dataclass(frozen=True)
class Shouted(TextFiles):
    def documents(self):
        return (text.upper() for text in super().documents())
"""


def test_classes_of_a_config_reach_the_workers(folder, tmp_path):
    file = tmp_path / "own_corpus.py"
    file.write_text(OWN)
    module = load_module(file)
    data = Data(module.Shouted(texts(folder).paths), Bytes(), held_out=0.1, cache_dir=str(tmp_path / "cache"))
    store = data.prepare(Stream(32), workers=2)
    assert "THE MODEL" in store.tokenizer.decode(np.concatenate([row["ids"] for row in store.train]))
    del sys.modules[module.__name__]


def test_a_tokenizer_of_shards_sees_all_of_them_evenly(folder, tmp_path, monkeypatch):
    """A shard of far more text than the others is drawn from again, at the rate of all."""
    monkeypatch.setattr(training, "_MAX_CHARACTERS", 6000)
    words = ["large" + "abcdefghij"[n % 10] * (1 + n % 7) for n in range(3000)]
    (folder / "c4.50000.json").write_text("".join(json.dumps({"text": f"{word} {word}"}) + "\n" for word in words))
    seen = []
    train = training.train_sentencepiece

    def spy(documents, **options):
        seen.extend(documents)
        return train(seen, **options)

    monkeypatch.setattr("t5x_lite.tokenizers.config.train_sentencepiece", spy)
    Data(texts(folder), SentencePiece(vocab_size=60), held_out=0.1, cache_dir=str(tmp_path)).prepare(Stream(32))
    sizes = {name: sum(len(text) for text in seen if ("large" in text) == name) for name in (True, False)}
    others = [text for text in texts(folder).documents() if "large" not in text]
    total = {True: sum(2 * len(word) + 1 for word in words), False: sum(map(len, others))}
    assert sum(sizes.values()) <= 1.2 * 6000
    shares = [sizes[name] / total[name] for name in (True, False)]
    assert shares[0] == pytest.approx(shares[1], rel=0.35)


@pytest.mark.slow
def test_parts_of_a_mixture_have_shards(folder, tmp_path):
    mixture = Mixture((Part("c4", texts(folder)), Part("first", TextFiles((str(folder / "c4.00000.json.gz"),)))))
    assert len(mixture.shards()) == SHARDS + 2
    data = Data(mixture, WordPiece(vocab_size=150), held_out=0.1)
    one, two = (replace(data, cache_dir=str(tmp_path / f"{n}")).prepare(Stream(32), workers=n) for n in (1, 2))
    assert one.key == two.key and len(one.train) == len(two.train)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_workers_end_with_the_process_that_started_them(folder, tmp_path, run_python):
    code = """
import os, signal, sys, threading, time
from t5x_lite.data.workers import Workers
from etils import epath
def work(shared, number, report):
    open(f"{shared}/pid{os.getpid()}", "w").close()
    time.sleep(60)
if __name__ == "__main__":
    def kill():
        while len([name for name in os.listdir(sys.argv[1]) if name.startswith("pid")]) < 2:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=kill, daemon=True).start()
    list(Workers(2).map(work, sys.argv[1], 4, epath.Path(sys.argv[1]), "x", print))
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    start = f"import runpy, sys; sys.argv = [{str(script)!r}, {str(tmp_path)!r}]"
    done = run_python(f"{start}; runpy.run_path(sys.argv[0], run_name='__main__')")
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(path.name[3:]) for path in tmp_path.glob("pid*")]
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
