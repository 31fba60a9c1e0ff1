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


@pytest.fixture
def now(monkeypatch):
    """The time, which only the test moves on."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


class Metric:
    """Of a step that ends at some time."""

    def __init__(self, done_at, now):
        self.done_at, self.now = done_at, now

    def is_ready(self):
        return self.now[0] >= self.done_at

    def block_until_ready(self):
        self.now[0] = max(self.now[0], self.done_at)


class Simulation(StepClock):
    """The clock, a device that computes one step after the other, `STEP` seconds each, and their time."""

    def __init__(self, now):
        self.now, self.metrics, self.times = now, [], RunTimes()
        self.times.switch("steps")
        super().__init__(self.times)

    # What the thread writes down.
    @property
    def _complete(self):
        ended = [(number, one.done_at) for number, one in enumerate(self.metrics[: self._number], 1) if one.is_ready()]
        return ended[-1] if ended else (0, 0.0)

    @_complete.setter
    def _complete(self, value):
        pass

    def step(self, data=0.0):
        """Waits so long for a batch, and dispatches a step."""

        def batches():
            self.now[0] += data
            yield {}

        def train_step(state, batch):
            free_at = self.metrics[-1].done_at if self.metrics else 0.0
            self.metrics.append(Metric(max(free_at, self.now[0]) + STEP, self.now))
            return state, self.metrics[-1]

        return self.dispatch(train_step, None, self.next_batch(batches()))[1]

    def run(self, data=0.0, logging=0.0, steps=6):
        """(figures, seconds by phase) of a loop like that of a run, whose data and logging take so long."""
        metric = None
        for _ in range(steps):
            next_metric = self.step(data)
            if metric is not None:
                metric.block_until_ready()
            self.now[0] += logging
            metric = next_metric
        return self.figures(STEP), {phase: self.times.total(phase) for phase in ("steps", "data")}


def test_devices_that_are_busy_do_not_wait(now):
    figures, seconds = Simulation(now).run(data=0.04, logging=0.04)
    assert figures == {"host_seconds_per_step": 0.0, "data_seconds_per_step": 0.0}
    # The first batch alone, for which there is no step before, is waited for.
    assert seconds["data"] == pytest.approx(0.04)
    assert seconds["steps"] == pytest.approx(now[0] - 0.04)


def test_data_that_is_late(now):
    figures, seconds = Simulation(now).run(data=STEP + 0.06)
    # Of each wait, what goes beyond the step that runs meanwhile.
    assert figures["data_seconds_per_step"] == figures["host_seconds_per_step"] == pytest.approx(5 * 0.06 / 6)
    assert seconds["data"] == pytest.approx(STEP + 0.06 + 5 * 0.06)
    assert seconds["steps"] == pytest.approx(now[0] - seconds["data"])


def test_a_host_that_is_slow(now):
    figures, seconds = Simulation(now).run(logging=STEP + 0.06, data=0.01)
    # The first step ends while it is logged, like all others but the last one.
    assert figures["host_seconds_per_step"] == pytest.approx(5 * 0.07 / 6)
    # The devices have nothing to do for longer than the wait for data.
    assert figures["data_seconds_per_step"] == pytest.approx(5 * 0.01 / 6)
    assert seconds["data"] == pytest.approx(6 * 0.01)


def test_a_call_that_computes_the_step_by_itself_is_not_a_wait(now):
    simulation = Simulation(now)

    def train_step(state, batch):
        now[0] += STEP
        simulation.metrics.append(Metric(now[0], now))
        return state, simulation.metrics[-1]

    for _ in range(4):
        simulation.dispatch(train_step, None, simulation.next_batch(iter([{}])))
        now[0] += 0.01
    assert simulation.figures(STEP)["host_seconds_per_step"] == pytest.approx(3 * 0.01 / 4)


def test_an_evaluation_is_not_a_wait_for_the_host(now):
    simulation = Simulation(now)
    for _ in range(3):
        simulation.step().block_until_ready()
        simulation.settled()
        now[0] += 5.0
    assert simulation.figures(STEP)["host_seconds_per_step"] == 0.0


def test_the_thread_knows_when_a_step_has_ended():
    multiply = jax.jit(lambda x: (x, {"loss": (x @ x).sum()}))
    with RunTimes() as times, StepClock(times) as clock:
        for number in (1, 2):
            before = time.perf_counter()
            _, metrics = clock.dispatch(lambda state, batch: multiply(batch), None, jax.numpy.ones((64, 64)))
            metrics["loss"].block_until_ready()
            deadline = time.monotonic() + 30
            while clock._complete[0] < number and time.monotonic() < deadline:
                time.sleep(0.001)
            assert clock._complete[0] == number
            assert before < clock._complete[1] <= time.perf_counter()


def test_a_step_that_fails_is_left_to_the_loop():
    class Failing(Metric):
        def block_until_ready(self):
            raise RuntimeError("the device is gone")

    with RunTimes() as times, StepClock(times) as clock:
        clock.dispatch(lambda state, batch: (state, Failing(0.0, [1.0])), None, None)
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


def test_hosts_are_compared_now_and_then_and_named_once(now, monkeypatch):
    """Process 0 of three; the others wrote what they measured."""
    written = {1: HostPace(1, "host-1", 0.1, 0.001, 0.0), 2: HostPace(2, "host-2", 0.1, 0.05, 0.04)}
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(
        pace.hosts, "set_value", lambda key, value: written.update({0: HostPace(*pace.json.loads(value))})
    )
    monkeypatch.setattr(
        pace.hosts, "get_values", lambda folder: [pace.json.dumps(astuple(one)) for one in written.values()]
    )
    seconds, warnings = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    simulation = Simulation(now)
    simulation._warn = warnings.append
    for seconds[0] in (5.0, 11.0, 12.0, 22.0):
        simulation.step()
        simulation.figures(STEP)
        assert len(warnings) == (seconds[0] >= 11.0)
    assert written[0].process == 0 and written[0].step_seconds == pytest.approx(STEP)
    assert warnings == ["process 2 on host-2 waits 0.040 s for its data in each step of 0.100 s"]
