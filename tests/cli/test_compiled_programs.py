"""In processes of their own, since jax reads where programs are kept when it is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from t5x_lite.cli.main import keep_compiled_programs

keep_compiled_programs()
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: x + 1)(1).block_until_ready()
"""


IN_A_BUCKET = """
import sys

import fsspec
from fsspec.implementations.local import LocalFileSystem

from t5x_lite.cli.main import keep_compiled_programs, share_compiled_programs


class Bucket(LocalFileSystem):
    protocol = ("gs", "gcs")

    def __init__(self, **options):
        super().__init__(auto_mkdir=True)

    @classmethod
    def _strip_protocol(cls, path):
        return str(path).replace("gs://bucket", sys.argv[1]).rstrip("/")


fsspec.register_implementation("gcs", Bucket, clobber=True)
keep_compiled_programs()
import jax

share_compiled_programs("gs://bucket/runs/a/")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
hits = []
jax.monitoring.register_event_listener(lambda event, **kwargs: hits.append(event))
jax.jit(lambda x: x + 1)(1).block_until_ready()
print(hits.count("/jax/compilation_cache/cache_hits"))
"""


def run(program: str = PROGRAM, *arguments: str, **environment: str) -> str:
    environment = {"PATH": "", "JAX_PLATFORMS": "cpu", **environment}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_programs_are_kept_in_the_cache_folder(tmp_path):
    run(T5X_LITE_CACHE=str(tmp_path))
    assert files(tmp_path / "compiled")


@pytest.mark.slow
def test_whoever_chose_a_folder_is_obeyed(tmp_path):
    run(T5X_LITE_CACHE=str(tmp_path / "ours"), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "theirs"))
    assert files(tmp_path / "theirs")
    run(T5X_LITE_CACHE=str(tmp_path / "ours"), JAX_COMPILATION_CACHE_DIR="")
    assert not files(tmp_path / "ours")


@pytest.mark.slow
def test_a_run_in_a_bucket_keeps_its_programs_there_for_all_hosts(tmp_path):
    bucket = str(tmp_path / "bucket")
    # The second host has a disk of its own.
    hits = [int(run(IN_A_BUCKET, bucket, T5X_LITE_CACHE=str(tmp_path / host))) for host in ("one", "two")]
    assert hits[0] == 0 and hits[1] > 0
    assert files(tmp_path / "bucket" / "runs" / "a" / "compiled")
    assert not files(tmp_path / "one") and not files(tmp_path / "two")
    run(IN_A_BUCKET, bucket, T5X_LITE_CACHE=str(tmp_path), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "theirs"))
    assert files(tmp_path / "theirs")
