"""How processes agree: threads stand for them, and a dictionary for JAX's key-value store."""

import itertools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from t5x_lite.errors import InputError
from t5x_lite.parallel import hosts, preemption
from t5x_lite.parallel.hosts import Heartbeat
from t5x_lite.parallel.preemption import PreemptionSync
from t5x_lite.parallel.processes import ProcessConfig


class Service:
    """JAX's client, for threads."""

    def __init__(self):
        self.values: dict[str, str] = {}
        self.answers = threading.Event()
        self.answers.set()

    def key_value_set(self, key, value, allow_overwrite=False):
        self.answers.wait()
        assert allow_overwrite or key not in self.values, f"{key} is set twice"
        self.values[key] = value

    def blocking_key_value_get(self, key, milliseconds):
        deadline = time.monotonic() + milliseconds / 1000
        while key not in self.values:
            if time.monotonic() > deadline:
                raise jax.errors.JaxRuntimeError(f"DEADLINE_EXCEEDED: {key}")
            time.sleep(0.005)
        return self.values[key]

    def key_value_dir_get(self, folder):
        self.answers.wait()
        return [(key, value) for key, value in self.values.items() if key.startswith(folder)]


class Process(threading.local):
    """Which process a thread stands for."""

    number = 0

    def __init__(self):
        self.calls = itertools.count()

    def __next__(self):
        return next(self.calls)


@pytest.fixture
def processes(monkeypatch) -> Callable[..., list[Any]]:
    """`processes(count, body)`: what each of them returns or raises, all running at once; signals are polled often."""
    monkeypatch.setattr(preemption, "_POLL_SECONDS", 0.02)

    def run(count: int, body: Callable[[int], Any]) -> list[Any]:
        service, process = Service(), Process()
        monkeypatch.setattr(hosts, "_client", lambda: service)
        monkeypatch.setattr(hosts, "_calls", process)
        monkeypatch.setattr(jax, "process_count", lambda: count)
        monkeypatch.setattr(jax, "process_index", lambda: process.number)
        results: list[Any] = [None] * count

        def begin(number):
            process.number = number
            try:
                results[number] = body(number)
            except Exception as error:
                results[number] = error

        threads = [threading.Thread(target=begin, args=(number,), daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "they wait for each other"
        return results

    return run


def test_one_process_waits_for_nothing():
    assert hosts.is_first()
    assert hosts.exchange("mine") == ["mine"]
    with hosts.in_turn():
        pass
    hosts.check_alike({"devices": "8"}, "")
    with hosts.joined(None, {}, timeout=1):
        pass


def test_exchange_gives_all_in_their_order(processes):
    def body(number):
        time.sleep((11 - number) * 0.01)
        return hosts.exchange(f"a{number}"), hosts.exchange(f"b{number}")

    expected = ([f"a{number}" for number in range(12)], [f"b{number}" for number in range(12)])
    assert processes(12, body) == [expected] * 12


def test_the_first_goes_first(processes):
    order = []

    def body(number):
        with hosts.in_turn():
            if number == 0:
                time.sleep(0.2)
            order.append(number)

    processes(4, body)
    assert order[0] == 0
    assert sorted(order) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (InputError("text=absent.txt is not there"), InputError, "text=absent.txt is not there"),
        (OSError("no space"), hosts.OtherProcessError, "process 0: OSError: no space"),
    ],
)
def test_what_the_first_raises_all_raise(processes, error, kind, message):
    entered = []

    def body(number):
        with hosts.in_turn():
            entered.append(number)
            raise error

    first, *others = processes(3, body)
    assert first is error
    assert entered == [0]
    for other in others:
        assert type(other) is kind
        assert str(other) == message


def test_one_that_differs_is_named_everywhere(processes):
    def body(number):
        hosts.check_alike({"devices": "4 TPU v5" if number == 2 else "8 TPU v5"}, "give all the same")

    for error in processes(4, body):
        assert isinstance(error, InputError)
        assert str(error).startswith("devices is 4 TPU v5 for process 2 on ")
        assert "and 8 TPU v5 for process 0 on " in str(error)
        assert str(error).endswith("; give all the same")


@pytest.mark.parametrize("requesting", [0, 3])
@pytest.mark.parametrize("first", [0, 1000])
def test_all_stop_before_the_same_step(processes, requesting, first):
    """Steps need all processes, which may be one step apart: as collectives that are dispatched ahead."""
    done, count = [first] * 4, 4

    def body(number):
        flags = {"requested": False, "notified": False}
        stop = PreemptionSync(lambda: flags["requested"], lambda: flags.update(notified=True))
        stop.start_loop()
        for step in range(first, first + 3000):
            if number == requesting and step == first + 20:
                flags["requested"] = True
            if stop.should_stop(step):
                break
            done[number] = step + 1
            while min(done) < step:  # the metrics of the step before need all processes to have begun it
                time.sleep(0.0005)
        stop.close()
        return done[number], flags["notified"]

    results = processes(count, body)
    assert len({step for step, _ in results}) == 1
    assert first + 20 <= results[0][0] < first + 3000
    assert [stopped for _, stopped in results] == [number != requesting for number in range(count)]


def test_a_request_before_the_first_step_stops_before_it(processes):
    def body(number):
        stop = PreemptionSync(lambda: number == 1, lambda: None)
        stop.start_loop()
        time.sleep(0.5)
        stopped = stop.should_stop(70)
        stop.close()
        return stopped

    assert processes(3, body) == [True] * 3


def test_without_a_request_none_stops(processes):
    def body(number):
        stop = PreemptionSync(lambda: False, lambda: None)
        stop.start_loop()
        stopped = [stop.should_stop(step) for step in range(50)]
        stop.close()
        return any(stopped)

    assert processes(2, body) == [False, False]


class Hearts:
    """Processes with heartbeats, quick ones, and with which status each has ended."""

    def __init__(self, monkeypatch, count: int):
        monkeypatch.setattr(hosts, "HEARTBEAT_SECONDS", 1.0)
        monkeypatch.setattr(hosts, "_BEAT_SECONDS", 0.1)
        self.service, self.ended = Service(), {}
        monkeypatch.setattr(hosts, "_client", lambda: self.service)
        self.hearts = [
            Heartbeat(ProcessConfig("first:1", count, number), lambda: "checkpoint 7 is there", self.end_of(number))
            for number in range(count)
        ]

    def end_of(self, number: int) -> Callable[[int], None]:
        return lambda status: self.ended.update({number: status})

    def wait(self, count: int) -> dict[int, int]:
        deadline = time.monotonic() + 30
        while len(self.ended) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.ended


@pytest.fixture
def hearts(monkeypatch):
    """`hearts(count)`: their `Hearts`."""
    made = []

    def make(count: int) -> Hearts:
        made.append(Hearts(monkeypatch, count))
        return made[-1]

    yield make
    for each in made:
        each.service.answers.set()
        for heart in each.hearts:
            heart.close()
    time.sleep(0.3)


def test_one_that_is_silent_ends_the_others(hearts, capsys):
    run = hearts(4)
    time.sleep(1.5)
    assert run.ended == {}
    run.hearts[2].close()
    assert run.wait(3) == {0: 75, 1: 75, 3: 75}
    sentence = f"t5x-lite: process 2 on {socket.gethostname()} gave no sign of life for 1.0 s; checkpoint 7 is there\n"
    assert capsys.readouterr().err == 3 * sentence


def test_that_the_first_is_silent_the_others_see_for_themselves(hearts, capsys):
    run = hearts(3)
    time.sleep(0.5)
    run.hearts[0].close()
    run.service.answers.clear()
    assert run.wait(2) == {1: 75, 2: 75}
    sentence = "t5x-lite: process 0 on first gave no sign of life for 1.0 s; checkpoint 7 is there\n"
    assert capsys.readouterr().err == 2 * sentence


def test_one_that_failed_alone_ends_the_others_with_its_status(hearts, capsys):
    run = hearts(3)
    time.sleep(0.5)
    run.service.key_value_set("t5x_lite/leave/1", "[1, 2]")
    run.hearts[1].close()
    assert run.wait(2) == {0: 2, 2: 2}
    assert f"process 1 on {socket.gethostname()} ended with status 2; checkpoint 7" in capsys.readouterr().err


def test_an_abort_says_that_the_first_is_gone_where_nothing_listens_at_its_address(hearts, capsys, monkeypatch):
    run = hearts(2)
    with socket.create_server(("localhost", 0)) as server:
        config = ProcessConfig(f"localhost:{server.getsockname()[1]}", 2, 1)
        monkeypatch.setattr(run.hearts[1], "_config", config)
        run.hearts[1].on_abort(signal.SIGABRT)
        assert run.ended == {}
    run.hearts[0].on_abort(signal.SIGABRT)
    assert run.ended == {}, "it is process 0 itself"
    run.hearts[1].on_abort(signal.SIGABRT)
    assert run.ended == {1: 75}
    assert capsys.readouterr().err == "t5x-lite: process 0 on localhost is gone; checkpoint 7 is there\n"


def test_time_in_which_all_stood_still_does_not_count(hearts, monkeypatch):
    """As on a machine that was asleep."""
    later, now = [0.0], time.monotonic
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: now() + later[0], sleep=time.sleep))
    run = hearts(2)
    for _ in range(3):
        time.sleep(0.4)
        later[0] += 50
    time.sleep(1.5)
    assert run.ended == {}


SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_STEP_NODELIST": "node[007-010]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_NODES": "4",
}


@pytest.fixture
def environment(monkeypatch) -> Callable[..., None]:
    """`environment(**variables)`: those of a cluster, and no others."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "TPU_", "MEGASCALE_", "JAX_COORDINATOR")):
            monkeypatch.delenv(name)
    return lambda **variables: [monkeypatch.setenv(name, value) for name, value in variables.items()]


def test_a_process_that_nothing_started_is_alone(environment):
    environment()
    assert hosts.detect_process(1) is None


def test_slurm_says_where_and_who(environment):
    environment(**SLURM)
    config = hosts.detect_process(1)
    assert config.coordinator.startswith("node007:")
    assert (config.num_processes, config.process_id, config.local_device_ids) == (4, 2, (0,))


def test_one_task_of_slurm_is_alone(environment):
    environment(**SLURM | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"})
    assert hosts.detect_process(1) is None


def test_a_coordinator_whose_name_is_not_known(environment, monkeypatch):
    from jax._src.clusters import SlurmCluster

    def fail(timeout_secs, override_coordinator_port):
        raise RuntimeError("Failed to recognize coordinator address node007")

    environment(**SLURM)
    monkeypatch.setattr(SlurmCluster, "get_coordinator_address", fail)
    with pytest.raises(InputError, match=r"process 0's host is not known after 1 s \(Failed .* node007\); look"):
        hosts.detect_process(1)


GKE = {
    "TPU_WORKER_HOSTNAMES": "localhost,job-0-1.svc,job-0-2.svc,job-0-3.svc",
    "TPU_WORKER_ID": "3",
    "MEGASCALE_COORDINATOR_ADDRESS": "localhost",
}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"MEGASCALE_NUM_SLICES": "1", "MEGASCALE_SLICE_ID": "0"}, (4, 3)),
        ({"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"}, (8, 7)),
    ],
)
def test_gke_says_where_and_who(environment, monkeypatch, more, expected):
    from jax._src.clusters import cloud_tpu_cluster

    monkeypatch.setattr(cloud_tpu_cluster, "running_in_cloud_tpu_vm", True)
    environment(**GKE | more)
    assert hosts.detect_process(1) is None, "JAX stays on the CPU"
    monkeypatch.setattr(jax, "config", SimpleNamespace(jax_platforms=None))
    config = hosts.detect_process(1)
    assert config.coordinator == "localhost:8482"
    assert (config.num_processes, config.process_id) == expected
    assert config.local_device_ids is None
