"""Where the records of a run go beside its metrics.jsonl: TensorBoard, a CSV file, Weights & Biases, or your own."""

import contextlib
import csv
import hashlib
import importlib.util
import io
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import tyro
from etils import epath

from t5x_lite.errors import InputError
from t5x_lite.files import GrowingFile, is_in_bucket, read_bytes
from t5x_lite.validation import Validated

Figures = dict[str, float]


class OpenWriter(Protocol):
    """What a `Writer` opens; only process 0 of a run has one."""

    def write(self, step: int, kind: str, figures: Figures) -> None:
        """Takes the figures of one record: `kind` is train, held_out or checkpoint."""

    def close(self) -> None:
        """Ends the writing; the run is over, or an exception ends it."""


@dataclass(frozen=True)
class Writer(Validated):
    """Base of what an experiment names in `logging.writers`. One of your own derives from it and defines `open`."""

    def check(self) -> None:
        """Raises `InputError` where it cannot write here; called before a run prepares its data."""

    def open(self, workdir: epath.Path, experiment: Any, first: int) -> OpenWriter:
        """Begins to write.

        Args:
          workdir: the run's folder, on a disk or in a bucket.
          experiment: the run's `Experiment`.
          first: updates already done; records of later steps, which a killed run left, are to be dropped or hidden.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no open, which every Writer has")


@dataclass(frozen=True)
class TensorBoard(Writer):
    """Files of TensorBoard's events in `workdir/tensorboard`."""

    def open(self, workdir: epath.Path, experiment: Any, first: int) -> OpenWriter:
        return _Board(workdir / "tensorboard", first)


@dataclass(frozen=True)
class Csv(Writer):
    """`workdir/figures.csv`, a line for each figure: step, kind of record, name, value."""

    def open(self, workdir: epath.Path, experiment: Any, first: int) -> OpenWriter:
        return _CsvFile(workdir / "figures.csv", first)


@dataclass(frozen=True)
class WeightsAndBiases(Writer):
    """A run of Weights & Biases, through the package `wandb` where it is installed.

    Its id is made from the workdir's name, so that a run that goes on is one there too; the axis of its figures is
    `step`, and those of steps that are repeated are drawn once more.
    """

    project: str = "t5x_lite"
    entity: str = ""
    """The team or user; empty: wandb's default."""
    name: str = ""
    """Of the run; empty: the name of its folder."""

    def check(self) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise InputError(
                "logging.writers has WeightsAndBiases, which needs the package wandb; pip install wandb, or leave it "
                "out"
            )

    def open(self, workdir: epath.Path, experiment: Any, first: int) -> OpenWriter:
        import wandb

        from t5x_lite.training.experiment import flat_fields  # which imports this module

        fields = flat_fields(experiment)
        location = str(workdir) if is_in_bucket(workdir) else f"{socket.gethostname()}:{epath.Path(workdir).resolve()}"
        run = wandb.init(
            project=self.project,
            entity=self.entity or None,
            name=self.name or workdir.name,
            id=hashlib.sha256(location.encode()).hexdigest()[:16],
            resume="allow",
            dir=None if is_in_bucket(workdir) else str(workdir),
            config={name: value if isinstance(value, int | float) else str(value) for name, value in fields},
        )
        run.define_metric("*", step_metric="step")
        return _Tracked(run)


_NAMES = {"tensorboard": TensorBoard(), "csv": Csv(), "wandb": WeightsAndBiases()}


def _named(names: list[str]) -> tuple[Writer, ...]:
    if unknown := [name for name in names if name not in _NAMES]:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(_NAMES)}")
    return tuple(_NAMES[name] for name in names)


BY_NAME = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar=f"[{{{','.join(_NAMES)}}} ...]",
    instance_from_str=_named,
    is_instance=lambda value: isinstance(value, tuple) and all(isinstance(one, Writer) for one in value),
    str_from_instance=lambda value: [
        next((name for name, known in _NAMES.items() if known == one), type(one).__name__) for one in value
    ],
)
"""How the command line names writers."""


class _Tracked:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, step: int, kind: str, figures: Figures) -> None:
        self._run.log({"step": step} | {f"{kind}/{name}": value for name, value in figures.items()})

    def close(self) -> None:
        self._run.finish()


class _CsvFile:
    def __init__(self, path: epath.Path, first: int) -> None:
        lines = [("step", "kind", "name", "value")]
        if path.exists():
            rows = csv.reader(io.StringIO(read_bytes(path).decode(errors="replace")))
            with contextlib.suppress(csv.Error):  # of a file that something else has written
                lines += [tuple(row) for row in rows if len(row) == 4 and row[0].isdecimal() and int(row[0]) <= first]
        self._file = GrowingFile(path, _format_rows(lines))

    def write(self, step: int, kind: str, figures: Figures) -> None:
        self._file.write(_format_rows([(step, kind, name, value) for name, value in figures.items()]))

    def close(self) -> None:
        self._file.close()


def _format_rows(rows: list[tuple[Any, ...]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


@contextlib.contextmanager
def _absent(package: str) -> Iterator[None]:
    """A package that nobody has imported yet cannot be imported meanwhile."""
    hidden = package not in sys.modules
    if hidden:
        sys.modules[package] = None
    try:
        yield
    finally:
        if hidden:
            del sys.modules[package]


class _Board:
    """A file of TensorBoard's events, which hides those of an earlier run from step `first` on.

    It is written by the thread that calls. tensorboardX's own writer hands events to a thread through a pipe between
    processes: when that thread fails, as it does on a full disk, the run waits for it forever.
    """

    def __init__(self, folder: epath.Path, first: int):
        # Imported here: it costs half a second that only training needs to pay.
        with _absent("torch"):  # which tensorboardX imports where it is installed, for seconds and for nothing here
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.record_writer import RecordWriter, register_writer_factory

        register_writer_factory("growing", SimpleNamespace(open=lambda name: GrowingFile(name.partition(":")[2])))
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{time.monotonic_ns()}"
        self._records = RecordWriter(f"growing:{folder / name}")
        self._write(Event(step=first + 1, file_version="brain.Event:2"))
        self._write(Event(step=first + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, kind: str, figures: Figures) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary
        from tensorboardX.summary import scalar

        values = [scalar(f"{kind}/{name}", value).value[0] for name, value in figures.items()]
        self._write(Event(step=step, summary=Summary(value=values)))

    def close(self) -> None:
        self._records.close()

    def _write(self, event: Any) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
