"""In processes of their own, since jax reads where programs are kept when it is imported."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from t5x_lite.cli.main import keep_compiled_programs

keep_compiled_programs()
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: x + 1)(1).block_until_ready()
"""


def run(**environment: str) -> None:
    environment = {"PATH": "", "JAX_PLATFORMS": "cpu", **environment}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_programs_are_kept_in_the_cache_folder(tmp_path):
    run(T5X_LITE_CACHE=str(tmp_path))
    assert files(tmp_path / "compiled")


def test_whoever_chose_a_folder_is_obeyed(tmp_path):
    run(T5X_LITE_CACHE=str(tmp_path / "ours"), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "theirs"))
    assert files(tmp_path / "theirs")
    run(T5X_LITE_CACHE=str(tmp_path / "ours"), JAX_COMPILATION_CACHE_DIR="")
    assert not files(tmp_path / "ours")
