"""Where the time of a run goes: phases of one process, and sums over those that were killed."""

import itertools
import time
from dataclasses import replace

import pytest
from etils import epath

from t5x_lite.runs.goodput import FILE, LABELS, RunTimes, count_goodput, format_duration, read_times
from t5x_lite.runs.records import Records, read_records
from t5x_lite.runs.workdir import begin


def line(started, first, step, **seconds):
    return {"started": started, "first": first, "step": step, "seconds": seconds}


@pytest.fixture
def now(monkeypatch):
    """The time, which only the test moves on."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_every_moment_counts_as_one_phase(now, tmp_path):
    with RunTimes(time.time() - 5.0) as times:
        times.open(tmp_path, 0)
        now[0] += 1.0
        times.switch("steps")
        now[0] += 2.0
        with times.phase("saves"):
            now[0] += 4.0
            with times.phase("evaluation"):
                now[0] += 8.0
            now[0] += 16.0
        now[0] += 32.0
        times.move(0.5, "saves", "data")
        assert times.total("steps", "data") == 34.5
        times.write(4)
    goodput = count_goodput(read_times(tmp_path))
    assert goodput.seconds.pop("start") == pytest.approx(6.0, abs=0.1)
    assert goodput.seconds == {"steps": 34.0, "saves": 19.5, "evaluation": 8.0, "data": 0.5}
    assert goodput.seconds.keys() <= LABELS.keys()


def test_three_restarts_add_up():
    """Killed at 50 (saved at 30), stopped at 90 (saved there), killed at 130, before anything was saved again."""
    lines = [
        line(1000.0, 0, 0, start=10.0),
        line(1000.0, 0, 30, start=10.0, compile=5.0, steps=30.0),
        line(1000.0, 0, 50, start=10.0, compile=5.0, steps=50.0, saves=2.0),
        line(1100.0, 30, 30, start=8.0),
        line(1100.0, 30, 90, start=8.0, compile=1.0, steps=60.0, data=4.0, saves=3.0),
        line(1200.0, 90, 90, start=7.0),
        line(1200.0, 90, 130, start=7.0, compile=1.0, steps=40.0),
        line(1300.0, 90, 90, start=6.0),
        line(1300.0, 90, 150, start=6.0, compile=1.0, steps=60.0, evaluation=9.0),
    ]
    goodput = count_goodput(lines)
    assert goodput.restarts == 3
    assert goodput.seconds == {
        "steps": 30.0 + 60.0 + 60.0,
        "repeated": 20.0 + 40.0,
        "start": 31.0,
        "compile": 8.0,
        "data": 4.0,
        "saves": 5.0,
        "evaluation": 9.0,
        "down": 33.0 + 24.0 + 52.0,
    }
    assert goodput.wall == 1376.0 - 1000.0
    assert goodput.share == pytest.approx(150 / 376)
    assert goodput.share_while_up == pytest.approx(150 / (376 - 109))
    # Where nothing runs, the wall time goes on.
    assert count_goodput(lines, until=1400.0).wall == 400.0
    # What was not saved when the last process was killed will be done again.
    killed = count_goodput(lines[:-2], until=1250.0, saved=90).seconds
    assert (killed["steps"], killed["repeated"], killed["down"]) == (30.0 + 60.0, 20.0 + 40.0, 33.0 + 24.0 + 2.0)
    text = goodput.describe().splitlines()
    assert text[0] == "goodput: 39.9% of 6:16 (56.2% of the time in which it ran), 3 restarts"
    assert len(text) == 1 + len(goodput.seconds)
    assert sum(float(row.split("%")[0].split()[-1]) for row in text[1:]) == pytest.approx(100, abs=0.5)


def test_steps_are_lost_in_every_process_that_came_further():
    """The third process goes on from a checkpoint of the first, since that of the second is damaged."""
    lines = [line(0.0, 0, 40, steps=40.0), line(50.0, 40, 60, steps=20.0), line(80.0, 20, 30, steps=10.0)]
    seconds = count_goodput(lines).seconds
    assert (seconds["steps"], seconds["repeated"]) == (20.0 + 10.0, 20.0 + 20.0)
    assert sum(seconds.values()) == 90.0


def test_a_clock_that_is_behind_takes_nothing_away():
    lines = [line(100.0, 0, 4, steps=40.0), line(130.0, 4, 8, steps=40.0)]
    assert count_goodput(lines).seconds == {"steps": 80.0}


def test_what_is_not_a_line_is_skipped(tmp_path):
    good = '{"started": 1.0, "first": 0, "step": 2, "seconds": {"steps": 1.5}}\n'
    bad = ['{"started": 1.0, "first": 0, "st', "[]", "null", '{"started": "x", "first": 0, "step": 1, "seconds": {}}']
    (tmp_path / FILE).write_bytes((good + "\n".join(bad)).encode() + b"\xff")
    assert read_times(tmp_path) == [line(1.0, 0, 2, steps=1.5)]
    assert count_goodput(read_times(tmp_path / "absent")) is None


def test_lines_of_a_long_run_grow_rare(now, tmp_path):
    with RunTimes() as times:
        times.open(tmp_path, 0)
        for second in range(0, 30 * 24 * 3600, 20):
            now[0] = float(second)
            times.write_sometimes(second)
    lines = read_times(tmp_path)
    assert len(lines) < 6000
    gaps = [after["step"] - before["step"] for before, after in itertools.pairwise(lines)]
    assert max(gaps) <= 620


@pytest.mark.slow
def test_a_run_with_three_restarts_adds_up(tiny, train, tmp_path, monkeypatch):
    """Its lines add up to the wall time, and its records and the phases measure the same time of steps."""
    record, began = Records.train, time.time()
    for last in (3, 4, 5):

        def die(self, step, metrics, last=last):
            record(self, step, metrics)
            if step == last:
                raise MemoryError("as if killed")

        with monkeypatch.context() as patch:
            patch.setattr(Records, "train", die)
            with pytest.raises(MemoryError):
                train(tiny, tmp_path)
        assert count_goodput(read_times(tmp_path)).wall == pytest.approx(time.time() - began, abs=2.0)
        time.sleep(0.2)
    train(tiny, tmp_path, report=False)
    wall, goodput = time.time() - began, count_goodput(read_times(tmp_path))
    assert goodput.restarts == 3
    assert goodput.wall == pytest.approx(wall, abs=2.0)
    assert goodput.wall == pytest.approx(sum(goodput.seconds.values()))
    assert goodput.seconds["down"] >= 3 * 0.2
    phases = ("start", "compile", "steps", "repeated", "evaluation", "saves")
    assert all(goodput.seconds[phase] > 0 for phase in phases)
    # Checkpoints are those of steps 2 and 4.
    firsts = {line["started"]: line["first"] for line in read_times(tmp_path)}
    assert [*firsts.values()] == [0, 2, 2, 4]
    trained = [one for one in read_records(tmp_path / "metrics.jsonl") if one["kind"] == "train"]
    of_records = sum(one["seconds_per_step"] for one in trained)
    counted = sum(goodput.seconds.get(phase, 0.0) for phase in ("steps", "data"))
    assert 0.3 * counted < of_records < 3 * counted


def test_another_run_in_a_folder_where_nothing_was_saved_begins_anew(tiny, tmp_path):
    store = tiny.data.prepare(tiny.objective.layout)
    for experiment, kept in ((tiny, False), (tiny, True), (replace(tiny, seed=5), False)):
        begin(epath.Path(tmp_path), experiment, store)
        assert bool(read_times(tmp_path)) == kept
        with RunTimes() as times:
            times.open(tmp_path, 0)


def test_durations():
    assert format_duration(0.4) == "0:00"
    assert format_duration(59.6) == "1:00"
