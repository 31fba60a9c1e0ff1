"""A corpus in a bucket that fails as networks do, prepared there by processes that are killed, and trained from there
by processes of which some are killed: the run is that of undisturbed ones, and only its workdir is on a disk."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import pytest

import t5x_lite
from t5x_lite.data import Data, TextFiles, WordPiece
from t5x_lite.models import GptConfig
from t5x_lite.objectives import CausalLanguageModel
from t5x_lite.training import Checkpointing, Evaluation

from ..s3_bucket import Proxy, faults, s3_bucket
from ..slow import in_campaigns
from .test_many_processes import children, impatient, losses, wait_for_checkpoint

pytest.importorskip("moto.server", reason="needs moto[server], as in .[oracle]")
s3fs = pytest.importorskip("s3fs", reason="needs s3fs, as in .[oracle]")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds its processes in Linux's /proc"),
]
FILES, DOCUMENTS, STEPS = 6, 800, 40


@dataclass(frozen=True)
class Shell:
    """Commands with a home, a folder for temporary files and a working directory of their own, all empty."""

    config: Path
    folder: Path
    environment: dict[str, str]

    def start(self, *words: object) -> subprocess.Popen:
        command = [sys.executable, "-m", "t5x_lite", words[0], str(self.config), *map(str, words[1:])]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(
            command, env=self.environment, cwd=self.folder / "here", start_new_session=True, **pipes
        )

    def run(self, *words: object) -> str:
        """What a command prints that ends well."""
        process = self.start(*words)
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
        return out

    def left(self) -> dict[str, int]:
        """The bytes of the files in its folders."""
        return {str(path): path.stat().st_size for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def bucket() -> Iterator[Proxy]:
    """`s3://bucket` with a corpus like C4's, a megabyte in compressed lines of JSON."""
    random_words, words = random.Random(0), [f"w{number}" for number in range(3000)]
    with s3_bucket() as proxy:
        for number in range(FILES):
            texts = (" ".join(random_words.choices(words, k=50)) for _ in range(DOCUMENTS))
            lines = "".join(json.dumps({"text": text, "url": "x"}) + "\n" for text in texts)
            name = f"s3://bucket/c4/c4-train.{number:05d}-of-{FILES:05d}.json.gz"
            s3fs.S3FileSystem().pipe(name, gzip.compress(lines.encode(), mtime=0))
        yield proxy


@pytest.fixture(scope="module")
def shell(bucket, tiny, tmp_path_factory, quick_compiler) -> Shell:
    folder = tmp_path_factory.mktemp("shell")
    sizes = {"embed_dim": 16, "num_heads": 2, "mlp_dim": 24, "num_layers": 1, "max_length": 64}
    experiment = replace(
        tiny,
        model=GptConfig(vocab_size=2048, **sizes),
        objective=CausalLanguageModel(64),
        data=Data(TextFiles(("s3://bucket/c4",)), WordPiece(2048), held_out=0.01),
        steps=STEPS,
        evaluation=Evaluation(every=0, rows=10),
        checkpoints=Checkpointing(every=20, keep_best=0),
    )
    config = tmp_path_factory.mktemp("config") / "config.py"
    config.write_text(f"from t5x_lite import Experiment\nexperiment = Experiment.from_json({experiment.to_json()!r})\n")
    config = impatient(config, config.parent)
    for name in ("home", "tmp", "here"):
        (folder / name).mkdir()
    compiled = tmp_path_factory.mktemp("compiled")
    environment = os.environ | {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": quick_compiler,
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    return Shell(config, folder, {k: v for k, v in environment.items() if not k.startswith("XDG_")})


def names(prefix: str) -> list[str]:
    s3 = s3fs.S3FileSystem()
    s3.invalidate_cache()
    return s3.find(f"s3://bucket/{prefix}/")


def objects(prefix: str) -> dict[str, bytes]:
    return {name.partition(prefix)[2]: s3fs.S3FileSystem().cat_file(name) for name in names(prefix)}


def kill_prepare(shell: Shell, out: str, most: int) -> bool:
    """Begins to prepare and kills all processes when there are `most` objects more; False where it ended before."""
    before = len(names(out))
    process = shell.start("prepare", "--out", f"s3://bucket/{out}", "--workers", 4)
    while process.poll() is None and len(names(out)) < before + most:
        time.sleep(0.1)
    ended = process.poll() is not None
    if not ended:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return not ended


@pytest.fixture(scope="module")
def prepared(bucket, shell) -> str:
    """Rows that four workers made, all of whom were killed twice, while a tenth of their reads met faults."""
    with faults(bucket, 1, 0.1):
        shell.run("prepare", "--out", "s3://bucket/one", "--workers", 1)
    with faults(bucket, 2, 0.1):
        assert kill_prepare(shell, "four", 1)
        kill_prepare(shell, "four", 2)
        shell.run("prepare", "--out", "s3://bucket/four", "--workers", 4)
    return "s3://bucket/four"


def test_workers_and_kills_do_not_matter(prepared):
    one, four = (
        {name: content for name, content in objects(out).items() if name.startswith("/stores/")}
        for out in ("one", "four")
    )
    assert sum(name.endswith(".rows") for name in one) >= 2
    assert one.keys() == four.keys()
    assert [name for name in one if one[name] != four[name]] == []


@pytest.mark.parametrize("processes, killed", [(2, [1]), pytest.param(4, [1, 3], marks=in_campaigns)])
def test_processes_train_from_the_bucket_and_some_are_killed(bucket, shell, prepared, tmp_path, processes, killed):
    options = ("--data.prepared", prepared, "--local-processes", processes)
    shell.run("train", *options, "--workdir", tmp_path / "undisturbed")
    with faults(bucket, 3, 0.05):
        process = shell.start("train", *options, "--workdir", tmp_path / "killed")
        wait_for_checkpoint(tmp_path / "killed", process, 20)
        others = children(process)
        for number in killed:
            os.kill(others[number], signal.SIGKILL)
        process.communicate(timeout=120)
        assert process.returncode not in (0, 2)
        out = shell.run("train", *options, "--workdir", tmp_path / "killed")
    assert "resuming from step" in out
    assert losses(tmp_path / "killed") == losses(tmp_path / "undisturbed")
    ours, theirs = (t5x_lite.load(tmp_path / name).params for name in ("killed", "undisturbed"))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    assert sum(shell.left().values()) < 100_000, shell.left()
    for name in ("killed", "undisturbed"):
        assert not [path for path in (tmp_path / name).rglob("*") if path.suffix in (".rows", ".gz")]
