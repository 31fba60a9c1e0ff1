"""The folder of a run: opening it, and refusing what would spoil it.

experiment.json   the run as one value
store.json        which token store it reads
tokenizer/        what its ids mean
checkpoints/N/    the state after N steps; self-contained
metrics.jsonl, tensorboard/, loss.png, held_out.json, samples.txt, samples.png
times.jsonl       where its time went, over all restarts
"""

import contextlib
import hashlib
import json
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath

from t5x_lite.data import Tokenizer, TokenStore, load_tokenizer
from t5x_lite.data.passage_rows import PassageRows
from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket, read_bytes, read_json, write_atomically
from t5x_lite.parallel import hosts
from t5x_lite.runs import goodput
from t5x_lite.runs.checkpoints import Files, is_checkpoint, steps_of_run
from t5x_lite.training.experiment import Experiment, differences


@contextlib.contextmanager
def open_workdir(workdir: epath.Path, experiment: Experiment) -> Iterator[None]:
    """A context in which the folder is this run's alone: it is made, or the run in it is this one.

    Raises `InputError` for a path that is a file or cannot be written to, for a folder that another run has open, for a
    run that computes something else, and for a folder that other hosts do not see. A folder that is empty at the end is
    removed.
    """
    with contextlib.ExitStack() as lock:
        with hosts.in_turn():
            if hosts.is_first():
                lock.enter_context(_opened(workdir))
                _check_workdir(workdir, experiment)
        if blind := hosts_without(workdir):
            raise InputError(
                f"workdir={workdir} is not the same folder on all hosts: {', '.join(blind)} cannot see what process 0 "
                "writes there; choose a folder that all share, or one in a bucket such as gs://bucket/run"
            )
        yield


@contextlib.contextmanager
def _opened(workdir: epath.Path) -> Iterator[None]:
    if is_in_bucket(workdir) and not str(workdir).startswith("gs://"):
        raise InputError(
            f"workdir={workdir} is in a store into which Orbax writes no checkpoints; choose a bucket in gs://, or a "
            "folder (text and prepared rows may be in s3://)"
        )
    with contextlib.ExitStack() as lock:
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            lock.callback(_remove_if_empty, workdir)
            if not is_in_bucket(workdir):  # no object there ends with the process that holds it
                lock.enter_context(_locked(workdir))
                for pattern in ("*.[0-9]*.tmp", ".written-*", ".seen-*"):  # of runs that were killed
                    for left in workdir.glob(pattern):
                        left.unlink()
            probe = workdir / f".written-{uuid.uuid4().hex}"
            probe.write_bytes(b"")
            probe.unlink()
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"workdir={workdir} is, or lies in, a file; choose a folder") from None
        except InputError:
            raise
        except Exception as error:
            # Each kind of bucket has its own ways to fail.
            if not isinstance(error, OSError) and not is_in_bucket(workdir):
                raise
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise InputError(f"workdir={workdir} cannot be written to ({reason}); choose another folder") from None
        yield


@contextlib.contextmanager
def _locked(workdir: epath.Path) -> Iterator[None]:
    """Holds `flock` on a file in the folder: the system releases it however the process ends, and file systems that
    hosts share pass it on, if they have locks at all."""
    import fcntl  # Windows has none

    path = os.path.join(workdir, ".lock")
    while True:
        with open(path, "a+", errors="replace") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise InputError(
                    f"workdir={workdir} is in use by another run ({file.read(200)}); wait for its end, or choose "
                    "another --workdir"
                ) from None
            except OSError:  # a file system without locks
                pass
            # Not the file that the run before has just removed, which holds nobody off.
            if os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
                try:
                    yield
                finally:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
                return


def _check_workdir(workdir: epath.Path, experiment: Experiment) -> None:
    if is_checkpoint(workdir):
        raise InputError(f"workdir={workdir} is one checkpoint of a run; name the run's folder, two levels above")
    if has_begun(workdir):
        if not (workdir / "store.json").exists():
            raise InputError(f"workdir={workdir} holds converted parameters, no run; choose another --workdir")
        before = Experiment.from_json(read_bytes(workdir / "experiment.json"))
        if changed := differences(before, experiment):
            fields = ", ".join(f"{field} ({old!r} there, {new!r} here)" for field, old, new in changed)
            raise InputError(f"workdir={workdir} holds a run that differs in {fields}; choose another --workdir")


def hosts_without(folder: epath.PathLike) -> list[str]:
    """The processes whose `folder`, which must exist, is not process 0's."""
    if is_in_bucket(folder) or jax.process_count() == 1:
        return []
    probe = epath.Path(folder) / f".seen-{hosts.exchange(uuid.uuid4().hex)[0]}"
    with hosts.in_turn():
        if hosts.is_first():
            probe.write_bytes(b"")
    seen = hosts.exchange("" if probe.exists() else f"process {jax.process_index()} on {socket.gethostname()}")
    if hosts.is_first():
        probe.unlink()
    return [name for name in seen if name]


def _remove_if_empty(workdir: epath.Path) -> None:
    with contextlib.suppress(OSError, ValueError):  # etils raises ValueError for a folder that is not empty
        workdir.rmdir()


def has_begun(workdir: epath.Path) -> bool:
    """Whether the folder holds a run to go on with: one with a checkpoint."""
    return bool(steps_of_run(workdir))


def saved_tokenizer(workdir: epath.Path) -> Tokenizer | None:
    """The tokenizer that the run began with; None where it has none, or has not begun."""
    return tokenizer_from_files(tokenizer_files(workdir / "tokenizer")) if has_begun(workdir) else None


def begin(
    workdir: epath.Path,
    experiment: Experiment,
    store: TokenStore,
    teacher: Any = None,
    passages: PassageRows | None = None,
) -> None:
    """Records what the run is, or checks that its tokenizer, data, teacher and corpus are those it began with."""
    folder, record = workdir / "tokenizer", workdir / "store.json"
    figures = {
        "key": store.key,
        "tokenizer": store.tokenizer.fingerprint if store.tokenizer else "",
        "train_rows": len(store.train),
        "held_out_rows": len(store.held_out),
        "classes": store.classes,
    }
    if teacher is not None:
        figures["teacher"] = _digest(teacher)
    if passages is not None:
        figures["corpus"] = passages.key
    if has_begun(workdir):
        before = read_json(record)
        if missing := {"key", "tokenizer"} - before.keys():
            raise InputError(f"{record} is damaged: it lacks {', '.join(sorted(missing))}; put a copy back")
        if before["tokenizer"] != figures["tokenizer"]:
            raise InputError(f"{folder} is not the tokenizer that the run began with; put that one back")
        if before["key"] != store.key:
            raise InputError(
                f"workdir={workdir} began on other data: data.source no longer gives what it gave then; "
                "bring that back or choose another --workdir"
            )
        if before.get("teacher") != figures.get("teacher"):
            raise InputError(
                f"workdir={workdir} began with another teacher; bring that one back or choose another --workdir"
            )
        if before.get("corpus") != figures.get("corpus"):
            raise InputError(
                f"workdir={workdir} began with another corpus: data.corpus no longer gives what it gave then; bring "
                "that back or choose another --workdir"
            )
    else:
        if _is_other_run(workdir, experiment):
            (workdir / goodput.FILE).unlink(missing_ok=True)
        # This need not be atomic: without a checkpoint the next run writes the folder anew.
        folder.rmtree(missing_ok=True)
        folder.mkdir()
        if store.tokenizer:
            with tempfile.TemporaryDirectory() as local:
                store.tokenizer.save(Path(local))
                for name, content in tokenizer_files(local).items():
                    (folder / name).write_bytes(content)
        if store.classes:
            write_atomically(folder / CLASSES, json.dumps(store.classes) + "\n")
    write_atomically(workdir / "experiment.json", experiment.to_json() + "\n")
    write_atomically(record, json.dumps(figures) + "\n")


def _is_other_run(workdir: epath.Path, experiment: Experiment) -> bool:
    """Whether what began in the folder, and saved nothing, computes something else."""
    try:
        return bool(differences(Experiment.from_json(read_bytes(workdir / "experiment.json")), experiment))
    except InputError:  # there is none, or one of another version
        return True


def _digest(params: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(jax.device_get(leaf)).tobytes())
    return digest.hexdigest()


CLASSES = "classes.json"
"""Beside a tokenizer's files: the names of the classes, where they are known from the data alone."""


def tokenizer_files(folder: epath.PathLike) -> Files:
    return {path.name: read_bytes(path) for path in sorted(epath.Path(folder).iterdir()) if path.is_file()}


def tokenizer_from_files(files: Files) -> Tokenizer | None:
    """The tokenizer of these files; None if there are none."""
    if not set(files) - {CLASSES}:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            if name != CLASSES:
                (Path(folder) / Path(name).name).write_bytes(content)
        return load_tokenizer(Path(folder))


def classes_from_files(files: Files) -> tuple[str, ...]:
    """The names of the classes among these files; empty if they are not there.

    >>> classes_from_files({"classes.json": b'["cat", "dog"]'}), classes_from_files({})
    (('cat', 'dog'), ())
    """
    try:
        names = json.loads(files.get(CLASSES, b"[]"))
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError
    except ValueError:
        raise InputError(f"{CLASSES} of the checkpoint is not a list of names; use another checkpoint") from None
    return tuple(names)
