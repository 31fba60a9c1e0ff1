"""What the folder of a run says of it, read without JAX: from any machine, while the run goes on elsewhere."""

import calendar
import contextlib
import json
import os
import re
import time
from dataclasses import dataclass
from typing import Any

from etils import epath

from t5x_lite.errors import InputError
from t5x_lite.files import is_in_bucket, read_bytes, read_json
from t5x_lite.runs.goodput import Goodput, count_goodput, format_duration, read_times

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""Of the time in a record, in UTC."""


@dataclass(frozen=True)
class RunStatus:
    """A run as its folder shows it."""

    workdir: str
    step: int
    """Updates done, by the last record or checkpoint."""
    steps: int
    running: bool | None
    """None where that is not known: buckets have no locks, and some file systems neither."""
    process: str
    """The one that has the folder open; empty where none has, or that is not known."""
    age: float | None
    """Seconds since the last record."""
    train: dict[str, Any]
    """The last record of training; empty before the first one."""
    held_out: dict[str, Any]
    """The last record of an evaluation."""
    checkpoints: tuple[int, ...]
    seconds_left: float | None
    """By the time that the steps of the last process took, evaluations and saves included."""
    goodput: Goodput | None

    @property
    def finished(self) -> bool:
        return self.steps in self.checkpoints and not self.running

    def to_json(self) -> dict[str, Any]:
        """The fields, and the figures that everyone looks for by themselves."""
        speed = {name: value for name, value in self.train.items() if name.endswith("_per_second") or name == "mfu"}
        goodput = self.goodput and {
            "share": self.goodput.share,
            "share_while_up": self.goodput.share_while_up,
            "wall": self.goodput.wall,
            "restarts": self.goodput.restarts,
            "started": self.goodput.started,
            "seconds": self.goodput.seconds,
        }
        return vars(self) | {
            "finished": self.finished,
            "loss": self.train.get("loss"),
            "held_out_loss": self.held_out.get("loss"),
            "goodput": goodput,
            **speed,
        }

    def describe(self) -> str:
        """Lines for a person."""
        state = "finished" if self.finished else "stopped" if self.running is False else "running"
        if self.running is None and not self.finished:
            state = "whether it runs is not known, for its folder has no locks"
        lines = [f"{self.workdir}: step {self.step:,} of {self.steps:,} ({self.step / self.steps:.1%}), {state}"]
        if self.process:
            lines[0] += f" ({self.process})"
        parts = [] if self.age is None else [f"{format_duration(self.age)} ago"]
        for record, prefix in ((self.train, ""), (self.held_out, "held-out ")):
            if record.get("loss") is not None:
                parts.append(f"{prefix}loss {record['loss']:.3f}")
        if (seconds := self.train.get("seconds_per_step")) is not None:
            parts.append(f"{seconds:.3f} s/step")
        for name, value in self.train.items():
            if name.endswith("_per_second") and value is not None:
                parts.append(f"{value:,.0f} {name.removesuffix('_per_second')}/s")
        if self.train.get("mfu") is not None:
            parts.append(f"mfu {self.train['mfu']:.1%}")
        lines.append(f"last record: {', '.join(parts)}" if parts else "no record yet")
        shown = ", ".join(map(str, self.checkpoints[-5:]))
        lines.append(f"checkpoints: {'..., ' if len(self.checkpoints) > 5 else ''}{shown or 'none yet'}")
        if self.seconds_left is not None and not self.finished:
            lines.append(f"{format_duration(self.seconds_left)} left{'' if self.running else ' when it runs'}")
        return "\n".join([*lines, *([self.goodput.describe()] if self.goodput else [])])


def read_status(workdir: epath.PathLike, now: float | None = None) -> RunStatus:
    """The status of the run in a folder, on a disk or in a bucket; raises `InputError` where there is no run.

    Args:
      now: seconds since 1970; by default the clock's.
    """
    workdir, now = epath.Path(workdir), time.time() if now is None else now
    if not (workdir / "experiment.json").exists() or not (workdir / "store.json").exists():
        raise InputError(f"{workdir} is not the folder of a run (it lacks experiment.json or store.json); name one")
    steps = read_json(workdir / "experiment.json").get("steps")
    if type(steps) is not int or steps < 1:
        raise InputError(f"{workdir}/experiment.json does not say how many steps the run has; copy it again")
    records, lines = read_records(workdir / "metrics.jsonl"), read_times(workdir)
    last = {record["kind"]: record for record in records}
    train, held_out = last.get("train", {}), last.get("held_out", {})
    folder = workdir / "checkpoints"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    checkpoints = tuple(sorted(int(name) for name in names if re.fullmatch("[0-9]+", name)))
    running, process = lock_holder(workdir)
    step = max([record["step"] for record in records if record["kind"] == "train"] + [*checkpoints[-1:], 0])
    ended = running is not False or steps in checkpoints
    dates = []
    for record in records[-1:]:
        with contextlib.suppress(ValueError, KeyError):
            dates.append(calendar.timegm(time.strptime(record["at"], TIME_FORMAT)))
    return RunStatus(
        workdir=str(workdir),
        step=step,
        steps=steps,
        running=running,
        process=process,
        age=max(now - dates[0], 0.0) if dates else None,
        train=train,
        held_out=held_out,
        checkpoints=checkpoints,
        seconds_left=_seconds_left(lines, train, steps - (max(checkpoints, default=0) if running is False else step)),
        goodput=count_goodput(lines) if ended else count_goodput(lines, now, max(checkpoints, default=0)),
    )


def _seconds_left(lines: list[dict[str, Any]], train: dict[str, Any], steps: int) -> float | None:
    lines = [line for line in lines if line["started"] == lines[-1]["started"]]
    seconds = train.get("seconds_per_step")
    # From the second line on: the first has the start and the compiler behind it.
    if len(lines) > 2 and (done := lines[-1]["step"] - lines[1]["step"]) > 0:
        seconds = (sum(lines[-1]["seconds"].values()) - sum(lines[1]["seconds"].values())) / done
    return None if seconds is None else seconds * max(steps, 0)


def lock_holder(workdir: epath.PathLike) -> tuple[bool | None, str]:
    """(whether a process has the run open, which one); (None, "") where that is not known."""
    if is_in_bucket(workdir):
        return None, ""
    try:
        import fcntl  # Windows has none

        with open(os.path.join(workdir, ".lock"), errors="replace") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False, ""  # the lock goes with the file
            except BlockingIOError:
                return True, file.read(200)
    except FileNotFoundError:
        return False, ""
    except (ImportError, OSError):
        return None, ""


def read_records(path: epath.PathLike) -> list[dict[str, Any]]:
    """The records of a `metrics.jsonl`: its steps and kinds, and figures that are finite numbers, or None.

    What is not a record is skipped, such as a last line that a killed run left unfinished.
    """
    records, path = [], epath.Path(path)
    for line in read_bytes(path).decode(errors="replace").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            step, kind = (record.get(name) if isinstance(record, dict) else None for name in ("step", "kind"))
            if isinstance(kind, str) and type(step) is int and 0 <= step < 1 << 62:
                records.append({name: value for name, value in record.items() if _is_valid(name, value)})
    return records


def _is_valid(name: str, value: Any) -> bool:
    """Whether a record's field has a value of its type: a text in two of them, elsewhere a figure."""
    if name in ("kind", "at"):
        return isinstance(value, str)
    return value is None or (isinstance(value, int | float) and abs(value) < 1e300)
