"""The folder of a run: opening it, and refusing what would spoil it.

experiment.json   the run as one value
store.json        which token store it reads
tokenizer/        what its ids mean
checkpoints/N/    the state after N steps; stands by itself
metrics.jsonl, tensorboard/, loss.png, held_out.json, samples.txt
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from t5x_lite.data import Tokenizer, TokenStore, load_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.training.checkpoints import Files, is_checkpoint, latest_step
from t5x_lite.training.experiment import Experiment, differences


def open_workdir(workdir: Path, experiment: Experiment) -> None:
    """Makes the folder, or checks that the run in it is this one.

    Raises `InputError` for a path that is a file or cannot be written to, and for a run that computes something else.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=workdir):
            pass
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"workdir={workdir} is, or lies in, a file; choose a folder") from None
    except OSError as error:
        raise InputError(f"workdir={workdir} cannot be written to ({error.strerror}); choose another folder") from None
    if is_checkpoint(workdir):
        raise InputError(f"workdir={workdir} is one checkpoint of a run; name the run's folder, two levels above")
    if has_begun(workdir):
        if not (workdir / "store.json").exists():
            raise InputError(f"workdir={workdir} holds converted parameters, no run; choose another --workdir")
        before = Experiment.from_json((workdir / "experiment.json").read_text())
        if changed := differences(before, experiment):
            fields = ", ".join(f"{field} ({old!r} there, {new!r} here)" for field, old, new in changed)
            raise InputError(f"workdir={workdir} holds a run that differs in {fields}; choose another --workdir")


def remove_if_empty(workdir: Path) -> None:
    """Removes the folder that `open_workdir` made, if nothing came of it."""
    with contextlib.suppress(OSError):
        workdir.rmdir()


def has_begun(workdir: Path) -> bool:
    """Whether the folder holds a run to go on with: one with a checkpoint. Without one there is nothing to lose."""
    return latest_step(workdir / "checkpoints") is not None


def saved_tokenizer(workdir: Path) -> Tokenizer | None:
    """The tokenizer that the run began with, if it has begun."""
    return load_tokenizer(workdir / "tokenizer") if has_begun(workdir) else None


def begin(workdir: Path, experiment: Experiment, store: TokenStore, teacher: Any = None) -> None:
    """Writes down what the run is, or checks that its tokenizer, data and teacher are those it began with."""
    folder, record = workdir / "tokenizer", workdir / "store.json"
    figures = {
        "key": store.key,
        "tokenizer": store.tokenizer.fingerprint,
        "train_rows": len(store.train),
        "held_out_rows": len(store.held_out),
    }
    if teacher is not None:
        figures["teacher"] = _digest(teacher)
    if has_begun(workdir):
        before = json.loads(record.read_text())
        if before["tokenizer"] != store.tokenizer.fingerprint:
            raise InputError(f"{folder} is not the tokenizer that the run began with; put that one back")
        if before["key"] != store.key:
            raise InputError(
                f"workdir={workdir} began on other data: data.source no longer gives the text it gave then; "
                "bring that text back or choose another --workdir"
            )
        if before.get("teacher") != figures.get("teacher"):
            raise InputError(
                f"workdir={workdir} began with another teacher; bring that one back or choose another --workdir"
            )
    else:
        shutil.rmtree(folder, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix="tokenizer.tmp", dir=workdir))
        store.tokenizer.save(temporary)
        temporary.chmod(0o755)
        temporary.replace(folder)
    for stale in workdir.glob("tokenizer.tmp*"):
        shutil.rmtree(stale, ignore_errors=True)
    write_atomically(workdir / "experiment.json", experiment.to_json() + "\n")
    write_atomically(record, json.dumps(figures) + "\n")


def _digest(params: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(jax.device_get(leaf)).tobytes())
    return digest.hexdigest()


def tokenizer_files(folder: Path) -> Files:
    """The tokenizer's files by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def write_atomically(path: Path, text: str) -> None:
    """Writes a small file that is either the old one or the new one, whatever happens."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)
