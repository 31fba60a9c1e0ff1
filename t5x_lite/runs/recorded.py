"""Runs as their folders show them, to be compared with each other."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from t5x_lite.errors import InputError
from t5x_lite.files import local_or_bucket, read_bytes
from t5x_lite.runs.status import read_records
from t5x_lite.training.experiment import Experiment

By = Literal["step", "tokens"]


@dataclass(frozen=True)
class RecordedRun:
    """The records in a run's folder, and what it trained."""

    name: str
    records: list[dict[str, Any]]
    experiment: Experiment | None

    def points(self, figure: str, kind: str, by: By) -> list[tuple[float, float | None]]:
        """(steps or ids, the figure) of all records of a kind that have the figure."""
        scale = 1
        if by == "tokens":
            if self.experiment is None:
                raise InputError(f"{self.name} has no experiment.json to say how many tokens a step has; use --by step")
            unit, scale = self.experiment.objective.layout.throughput(self.experiment.batch_size)
            if unit != "tokens":
                raise InputError(f"{self.name} trains on {unit} without tokens; use --by step")
        return [(one["step"] * scale, one[figure]) for one in self.records if one["kind"] == kind and figure in one]


def open_run(folder: str, name: str) -> RecordedRun:
    """Reads a run's folder; `InputError` where it has no records."""
    path = local_or_bucket(folder)
    records, described = read_records(path / "metrics.jsonl"), path / "experiment.json"
    if not records:
        raise InputError(f"{folder} has no metrics.jsonl with records in it; name the folder of a run that has trained")
    experiment = None
    with suppress(InputError):  # classes of its own that are not imported: the figures are there all the same
        experiment = Experiment.from_json(read_bytes(described)) if described.exists() else None
    return RecordedRun(name, records, experiment)


def short_names(folders: Sequence[str]) -> list[str]:
    """The folders without their common beginning; a single one's name.

    >>> short_names(("runs/a/x", "runs/b/x")), short_names(("runs/a/",))
    (['a/x', 'b/x'], ['a'])
    """
    parts = [Path(folder).parts for folder in folders]
    common = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False)))
    return [str(Path(*part[min(common, len(part) - 1) :])) for part in parts]
