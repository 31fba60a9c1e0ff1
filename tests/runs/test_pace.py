"""How long the devices wait for their hosts, with devices that are simulated, and which host is slow."""

import threading
import time
from dataclasses import astuple

import jax
import pytest

from t5x_lite.runs import pace
from t5x_lite.runs.goodput import RunTimes
from t5x_lite.runs.pace import HostPace, StepClock, find_slow_hosts

STEP = 0.1


class Device:
    """Computes one step after the other, `STEP` seconds each; a step's metrics are ready when it is done."""

    def __init__(self):
        self.free_at = 0.0

    def train_step(self, state, batch):
        self.free_at = done_at = max(self.free_at, time.perf_counter()) + STEP
        return state, Metric(done_at)


class Metric:
    def __init__(self, done_at):
        self.done_at = done_at

    def is_ready(self):
        return time.perf_counter() >= self.done_at

    def block_until_ready(self):
        time.sleep(max(self.done_at - time.perf_counter(), 0.0))


def batches(seconds):
    while True:
        time.sleep(seconds)
        yield {}


def run(data=0.0, logging=0.0, steps=6):
    """(figures, seconds by phase) of a loop like that of a run, whose data and logging take so long."""
    device, source, metric = Device(), batches(data), None
    with RunTimes() as times, StepClock(times) as clock:
        times.switch("steps")
        for _ in range(steps):
            batch = clock.next_batch(source)
            _, next_metric = clock.dispatch(device.train_step, None, batch)
            if metric is not None:
                metric.block_until_ready()
            time.sleep(logging)
            metric = next_metric
        figures = clock.figures(STEP)
        return figures, {phase: times.total(phase) for phase in ("steps", "data", "compile")}


def test_devices_that_are_busy_do_not_wait():
    figures, seconds = run(data=0.02, logging=0.02)
    assert figures["data_seconds_per_step"] <= figures["host_seconds_per_step"] < 0.01
    # The first batch alone, for which there is no step before, is waited for.
    assert 0.02 <= seconds["data"] < 0.06
    assert seconds["steps"] > 4 * STEP


def test_data_that_is_late():
    figures, seconds = run(data=STEP + 0.06)
    # Of each wait, what goes beyond the step that runs meanwhile.
    assert 5 * 0.055 / 6 <= figures["data_seconds_per_step"] < 0.1
    assert figures["host_seconds_per_step"] >= figures["data_seconds_per_step"]
    assert seconds["data"] - 6 * figures["data_seconds_per_step"] == pytest.approx(STEP + 0.06, abs=0.05)


def test_a_host_that_is_slow():
    figures, seconds = run(logging=STEP + 0.06)
    # The first two steps are dispatched one behind the other.
    assert 4 * 0.05 / 6 <= figures["host_seconds_per_step"] < 0.12
    assert figures["data_seconds_per_step"] < 0.01 and seconds["data"] < 0.03


def test_an_evaluation_is_not_a_wait_for_the_host():
    device = Device()
    with RunTimes() as times, StepClock(times) as clock:
        for _ in range(3):
            device.train_step(None, None)[1].block_until_ready()
            clock.dispatch(device.train_step, None, clock.next_batch(batches(0.0)))
            clock.settled()
        assert clock.figures(STEP)["host_seconds_per_step"] < 0.01


def test_a_step_that_fails_is_left_to_the_loop():
    class Failing(Metric):
        def block_until_ready(self):
            raise RuntimeError("the device is gone")

    with RunTimes() as times, StepClock(times) as clock:
        clock.dispatch(lambda state, batch: (state, Failing(0.0)), None, None)
    assert not [thread for thread in threading.enumerate() if thread.name == "step clock"]


def test_the_slow_host_is_named():
    fast = [HostPace(number, f"host-{number}", 1.0, 0.02, 0.0) for number in range(4)]
    assert find_slow_hosts(fast) == {}
    behind = [*fast[:2], HostPace(2, "host-2", 1.0, 0.3, 0.01), fast[3]]
    assert find_slow_hosts(behind) == {
        2: "process 2 on host-2 is behind the others: its devices wait 0.300 s for it in each step of 1.000 s"
    }
    late = [*fast[:3], HostPace(3, "host-3", 1.0, 0.3, 0.25)]
    assert find_slow_hosts(late) == {3: "process 3 on host-3 waits 0.250 s for its data in each step of 1.000 s"}
    # One process alone has nobody to be behind of, but its data may be late.
    assert find_slow_hosts(behind[2:3]) == {}
    assert list(find_slow_hosts(late[3:])) == [3]


def test_hosts_are_compared_now_and_then_and_named_once(monkeypatch):
    """Process 0 of three; the others wrote what they measured."""
    written = {1: HostPace(1, "host-1", 0.1, 0.001, 0.0), 2: HostPace(2, "host-2", 0.1, 0.05, 0.04)}
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(
        pace.hosts, "set_value", lambda key, value: written.update({0: HostPace(*pace.json.loads(value))})
    )
    monkeypatch.setattr(
        pace.hosts, "get_values", lambda folder: [pace.json.dumps(astuple(one)) for one in written.values()]
    )
    now, warnings, device = [0.0], [], Device()
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    with RunTimes() as times, StepClock(times, warnings.append) as clock:
        for second in (5.0, 11.0, 12.0, 22.0):
            clock.dispatch(device.train_step, None, clock.next_batch(batches(0.0)))
            now[0] = second
            clock.figures(STEP)
            assert len(warnings) == (second >= 11.0)
    assert written[0].process == 0 and written[0].step_seconds == pytest.approx(STEP)
    assert warnings == ["process 2 on host-2 waits 0.040 s for its data in each step of 0.100 s"]
