"""The shards of a corpus, handled one by one or side by side in processes, each once: results are kept until all are
there, so that what was done before a process was killed is not done again."""

import contextlib
import importlib.util
import io
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields, is_dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from t5x_lite.errors import InputError
from t5x_lite.files import write_atomically

Result = dict[str, np.ndarray]
"""What is known of a shard: arrays by name, such as those that NumPy's `.npz` files hold."""

Report = Callable[[float | None], None]
"""Called with the share that is done, from 0 to 1, or None where it is not known."""

Task = Callable[[Any, int, Report], Result]
"""A function of a module: (shared, number of the shard, report) -> result. `shared` is the same for all shards."""


@dataclass(frozen=True)
class Workers:
    """How many processes handle shards, and what all of them need.

    Where there is one process, it is this one. Others are started anew for each `map`: they import the modules that
    define the classes in `shared`, configs among them, and end with this process, however that ends.
    """

    count: int = 1

    def map(
        self, task: Task, shared: Any, num_shards: int, folder: epath.Path, name: str, report: Report
    ) -> Iterator[Result]:
        """The result for each shard, in order. Those that are files of the folder, `name-00000.npz`, are read there,
        others are written there. An error of a task is raised here, and ends the other processes."""
        paths = [folder / f"{name}-{number:05d}.npz" for number in range(num_shards)]
        if num_shards == 1:  # nothing to go on from
            yield task(shared, 0, report)
            return
        results = {number: result for number, path in enumerate(paths) if (result := _read(path)) is not None}
        missing = [number for number in range(num_shards) if number not in results]
        run = self._run if self.count > 1 and len(missing) > 1 else _run_here
        done = run(task, shared, missing)
        with contextlib.closing(done) as new:
            for number in range(num_shards):
                while number not in results:
                    finished, result = next(new)
                    _write(paths[finished], result)
                    results[finished] = result
                    report(len(results) / num_shards)
                yield results[number]

    def _run(self, task: Task, shared: Any, missing: Sequence[int]) -> Iterator[tuple[int, Result]]:
        try:
            content = pickle.dumps((task, shared))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            problem = f"workers={self.count} cannot share this data ({error})"
            raise InputError(f"{problem}; define its classes in a file, or use one worker") from None
        context = multiprocessing.get_context("spawn")
        before = set(multiprocessing.active_children())
        count = min(self.count, len(missing))
        pool = ProcessPoolExecutor(count, context, _start, (_modules_of(shared), content))
        waiting: dict[Future, int] = {}
        numbers = iter(missing)
        try:
            for number in numbers:
                waiting[pool.submit(_work, number)] = number
                if len(waiting) < 2 * count:
                    continue
                yield from _finished(waiting)
            while waiting:
                yield from _finished(waiting)
        except BrokenProcessPool:
            raise RuntimeError(
                "a worker was killed, perhaps for want of memory; the same command goes on from the shards that are "
                "complete, with fewer workers if need be"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
                child.join()


def _run_here(task: Task, shared: Any, missing: Sequence[int]) -> Iterator[tuple[int, Result]]:
    return ((number, task(shared, number, lambda share: None)) for number in missing)


def _finished(waiting: dict[Future, int]) -> Iterator[tuple[int, Result]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        yield waiting.pop(future), future.result()


def _read(path: epath.Path) -> Result | None:
    """None where there is no result, or half of one."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(path: epath.Path, result: Result) -> None:
    content = io.BytesIO()
    np.savez_compressed(content, **result)
    write_atomically(path, content.getvalue())


def _modules_of(value: Any) -> dict[str, str]:
    """The files of the modules that define the classes in a dataclass and that are not found by their names."""
    found: dict[str, str] = {}

    def visit(one: Any) -> None:
        if isinstance(one, tuple | list):
            for item in one:
                visit(item)
        elif is_dataclass(one):
            name = type(one).__module__
            module = sys.modules.get(name)
            file = getattr(module, "__file__", None)
            if file and name not in found and name != "__main__" and not _is_found(name, file):
                found[name] = os.path.abspath(file)
            for field in fields(one):
                visit(getattr(one, field.name))

    visit(value)
    return found


def _is_found(name: str, file: str) -> bool:
    spec = PathFinder.find_spec(name.partition(".")[0])  # not in `sys.modules`, which a new process has not
    return spec is not None and ("." in name or spec.origin == file)


_task: Any = None


def _start(modules: dict[str, str], content: bytes) -> None:
    """Prepares a process: Ctrl-C is left to the one that started it, and this one ends with that."""
    global _task
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for name, file in modules.items():
        if name not in sys.modules:
            sys.path.insert(0, str(Path(file).parent))
            spec = importlib.util.spec_from_file_location(name, file)
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
    _task = pickle.loads(content)


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _work(number: int) -> Result:
    task, shared = _task
    return task(shared, number, lambda share: None)
