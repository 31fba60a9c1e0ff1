"""The processes of a run, on one host or on many: how they find each other, and how they agree.

They communicate through the key-value store of JAX's coordination service at process 0, not through their accelerators
as `multihost_utils` does: no mesh is needed, waiting has no limit, and a message names the host that differs. Every
process calls these functions in the same order; with one process they return at once.
"""

import ctypes
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax

# JAX has no public interface to its key-value store; Orbax imports this module too. It is imported here, since a thread
# may import it while etils makes all imports lazy.
from jax._src import distributed

from t5x_lite.errors import InputError
from t5x_lite.parallel.processes import Facts, ProcessConfig, verify_processes

HEARTBEAT_SECONDS = 30
"""A process counts as lost after so long without a heartbeat, which ends all others."""

_BEAT_SECONDS = 2.0
_JAX_HEARTBEAT_SECONDS = 300  # JAX ends processes with a stack trace
_JOIN_SECONDS = 120  # once all processes are verified
_POLL_SECONDS = 0.05
_LEAVE_SECONDS = 15
_ROOT = "t5x_lite"
_calls = itertools.count()


class OtherProcessError(RuntimeError):
    """Process 0 failed while the others waited for it."""


def detect_process(timeout: float) -> ProcessConfig | None:
    """This process's configuration from SLURM, GKE or a Cloud TPU pod; None for a process that is alone.

    Raises `InputError` where the coordinator's name does not become known within `timeout` seconds.
    """
    # JAX has no public interface to what it knows of these clusters without starting its service at once.
    from jax._src.clusters import GceTpuCluster, GkeTpuCluster, SlurmCluster

    on_tpu = "tpu" in (jax.config.jax_platforms or "tpu")
    clusters = (SlurmCluster, *((GkeTpuCluster, GceTpuCluster) if on_tpu else ()))
    cluster = next((cluster for cluster in clusters if cluster.is_env_present()), None)
    if cluster is None or cluster.get_process_count() == 1:
        return None
    try:
        address = cluster.get_coordinator_address(int(timeout), os.environ.get("JAX_COORDINATOR_PORT"))
    except RuntimeError as error:
        raise InputError(
            f"process 0's host is not known after {timeout:g} s ({error}); look whether it started, or say where it is "
            "with --coordinator, --num-processes and --process-id"
        ) from None
    # SLURM gives every process of a host one of its GPUs.
    local = cluster.get_local_process_id()
    devices = None if local is None else (local,)
    return ProcessConfig(address, cluster.get_process_count(), cluster.get_process_id(), devices)


@contextmanager
def joined(
    config: ProcessConfig | None, facts: Facts, *, timeout: float, remains: Callable[[], str] = str
) -> Iterator[None]:
    """A context in which this process belongs to a run of several; nothing of JAX may have run before.

    When one of the others gives no sign of life, or ends by itself, this one ends with a sentence; see `Heartbeat`.

    Args:
      config: this process; None where it is alone.
      facts: values that must be equal in all processes.
      timeout: seconds to wait for the others.
      remains: what the sentence says of the run then, such as its last checkpoint.

    Raises:
      InputError: on all processes that connect, where others do not, or where facts or devices differ.
    """
    if config is None or config.num_processes == 1:
        yield
        return
    names = os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",")
    names = names if len(names) == config.num_processes else ()
    verify_processes(config, facts, timeout=timeout, hosts=names)
    jax.distributed.initialize(
        config.coordinator,
        config.num_processes,
        config.process_id,
        local_device_ids=config.local_device_ids,
        cluster_detection_method="deactivate",
        initialization_timeout=_JOIN_SECONDS,
        heartbeat_timeout_seconds=_JAX_HEARTBEAT_SECONDS,
    )
    heartbeat = Heartbeat(config, remains)
    _set_signal_handler(signal.SIGABRT, _SignalHandler(heartbeat.on_abort))
    device = jax.local_devices()[0]
    check_alike({"devices": f"{jax.local_device_count()} {device.device_kind}"}, "give every host the same devices")
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        # What devices do together fails where a process is gone, sooner than its heartbeat is missed.
        if "RESOURCE_EXHAUSTED" not in str(error):
            time.sleep(HEARTBEAT_SECONDS + 4 * _BEAT_SECONDS)
        raise
    exchange("")
    heartbeat.close()
    _set_signal_handler(signal.SIGABRT, _SignalHandler())  # the default
    # A process that ends otherwise does not wait for the others here: see `leave`.
    jax.distributed.shutdown()


# Of C: a handler of Python's own runs after the thread that aborts, which is never.
_SignalHandler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_handlers: dict[int, Any] = {}  # that are set, and would else be freed


def _set_signal_handler(number: int, handler: Any) -> None:
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = (ctypes.c_int, _SignalHandler), ctypes.c_void_p
    set_handler(number, handler)
    _handlers[number] = handler


class Heartbeat:
    """Two threads that end this process where another one of the run hangs or is gone; JAX would wait, then abort.

    Each process publishes a count and asks for process 0's verdict. Process 0 watches the counts, so that requests grow
    with the number of processes, and publishes which one has been silent for `HEARTBEAT_SECONDS`; that process 0 is
    silent the others see for themselves. All end with status 75, on which launchers begin again, or with that of a
    process that ended by itself. Time in which this process itself stood still does not count.
    """

    def __init__(self, config: ProcessConfig, remains: Callable[[], str], end: Callable[[int], Any] = os._exit):
        self._config, self._remains, self._end = config, remains, end
        self._last = {number: time.monotonic() for number in range(config.num_processes)}
        self._counts: dict[int, list[Any]] = {}
        self._verdict: tuple[int, str] | None = None
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True, name="heartbeat") for work in (self._beat, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join(5)

    def on_abort(self, signal_number: int) -> None:
        """A handler of SIGABRT: JAX aborts a process as soon as process 0, which has its coordination service, is gone.

        It returns, and the process aborts, where process 0 still listens: then something else is wrong.
        """
        if self._config.process_id == 0:
            return
        try:
            socket.create_connection(self._config.address, _BEAT_SECONDS).close()
        except OSError:
            self._finish(os.EX_TEMPFAIL, f"process 0 on {self._config.address[0]} is gone")

    def _beat(self) -> None:
        # A request waits for as long as process 0 is silent.
        me = self._config.process_id
        for count in itertools.count():
            if self._closed.is_set():
                return
            with suppress(jax.errors.JaxRuntimeError):  # process 0 has ended
                set_value(f"{_ROOT}/beat/{me}", json.dumps((me, socket.gethostname(), count)))
                beats = map(json.loads, get_values(f"{_ROOT}/beat") if me == 0 else ())
                for number, *beat in beats:  # its host and its count
                    if self._counts.get(number) != beat:
                        self._counts[number], self._last[number] = beat, time.monotonic()
                if me and (verdict := get_values(f"{_ROOT}/verdict")):
                    self._verdict = json.loads(verdict[0])
                self._last[0] = time.monotonic()
            self._closed.wait(_BEAT_SECONDS)

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._closed.wait(_BEAT_SECONDS / 4):
            now = time.monotonic()
            if now - before > _BEAT_SECONDS:
                self._last = {number: last + now - before for number, last in self._last.items()}
            before = now
            if verdict := self._verdict or self._judge(now):
                self._finish(*verdict)
                return

    def _judge(self, now: float) -> tuple[int, str] | None:
        """The status and the reason to end with, if there is one; process 0 publishes it."""
        first = self._config.process_id == 0
        watched = range(1, self._config.num_processes) if first else (0,)
        silent = [number for number in watched if now - self._last[number] > HEARTBEAT_SECONDS]
        if not silent:
            return None
        hosts = {0: self._config.coordinator.rpartition(":")[0]}
        hosts |= {number: host for number, (host, _) in self._counts.items()}
        names = ", ".join(f"process {number} on {hosts.get(number, 'its host')}" for number in silent[:3])
        names += f" and {len(silent) - 3} more" if len(silent) > 3 else ""
        verdict = os.EX_TEMPFAIL, f"{names} gave no sign of life for {HEARTBEAT_SECONDS} s"
        if first:
            left = dict(map(json.loads, get_values(f"{_ROOT}/leave")))
            if status := next((left[number] for number in silent if number in left), 0):
                verdict = status, f"{names} ended with status {status}"
            set_value(f"{_ROOT}/verdict/0", json.dumps(verdict))
            self._closed.wait(3 * _BEAT_SECONDS)  # until the others have read it
        return verdict

    def _finish(self, status: int, reason: str) -> None:
        remains: list[str] = []
        # The disk may be what hangs.
        thread = threading.Thread(target=lambda: remains.append(self._remains()), daemon=True)
        thread.start()
        thread.join(5)
        if not self._closed.is_set():
            sys.stderr.write(f"t5x-lite: {'; '.join([reason, *filter(None, remains)])}\n")
            sys.stderr.flush()
            self._end(status)


def is_first() -> bool:
    """Whether this process writes what is written once: logs, the token store, the tokenizer."""
    return jax.process_index() == 0


def exchange(value: str) -> list[str]:
    """The value of each process, by process."""
    if jax.process_count() == 1:
        return [value]
    folder, count = f"{_ROOT}/{next(_calls)}", jax.process_count()
    set_value(f"{folder}/from/{jax.process_index()}", json.dumps((jax.process_index(), value)))
    if not is_first():
        return json.loads(wait_for(f"{folder}/all"))
    # One process collects, or the requests of a pod would grow with the square of its processes.
    while len(messages := get_values(f"{folder}/from")) < count:
        time.sleep(_POLL_SECONDS)
    values = [value for _, value in sorted(map(json.loads, messages))]
    set_value(f"{folder}/all", json.dumps(values))
    return values


def check_alike(facts: Facts, remedy: str) -> None:
    """Raises `InputError` on every process where one has other facts than process 0; the message names that one."""
    messages = exchange(json.dumps([socket.gethostname(), facts]))
    (host, expected), *others = map(json.loads, messages)
    for number, (other, values) in enumerate(others, start=1):
        for name, value in values.items():
            if value != expected[name]:
                raise InputError(
                    f"{name} is {value} for process {number} on {other}, and {expected[name]} for process 0 on {host}; "
                    f"{remedy}"
                )


@contextmanager
def in_turn() -> Iterator[None]:
    """Process 0 runs the body first, then all others at once.

    An exception of process 0 is raised on the others too, before their bodies: `InputError` as itself. Where process 0
    is stopped by a signal, they wait on until they are stopped too.
    """
    if jax.process_count() == 1:
        yield
        return
    key = f"{_ROOT}/{next(_calls)}/outcome"
    if not is_first():
        error, message = json.loads(wait_for(key))
        if error == InputError.__name__:
            raise InputError(message)
        if error:
            raise OtherProcessError(f"process 0: {error}: {message}")
        yield
        return
    try:
        yield
    except Exception as error:
        set_value(key, json.dumps((type(error).__name__, str(error))))
        raise
    set_value(key, json.dumps(("", "")))


def leave(status: int) -> None:
    """Ends this process at once with a non-zero exit status; the others need not wait for it.

    Where all fail alike, process 0 ends last: it holds the coordination service, without which the others are aborted
    before they end with their own status. It waits for them `_LEAVE_SECONDS` at most.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with suppress(Exception):
        # Not jax.process_index(), which starts the devices and waits for all processes to do so.
        state = distributed.global_state
        if state.process_id:
            set_value(f"{_ROOT}/leave/{state.process_id}", json.dumps((state.process_id, status)))
        else:
            deadline = time.monotonic() + _LEAVE_SECONDS
            while len(get_values(f"{_ROOT}/leave")) < state.num_processes - 1 and time.monotonic() < deadline:
                if time.monotonic() > deadline - _LEAVE_SECONDS / 2:  # they do not fail alike: see `Heartbeat`
                    verdict = (status, f"process 0 on {socket.gethostname()} ended with status {status}")
                    set_value(f"{_ROOT}/verdict/0", json.dumps(verdict))
                time.sleep(_POLL_SECONDS)
            time.sleep(0.2)  # until the last one that set its key has ended
    os._exit(status)


def wait_for(key: str) -> str:
    """The value of a key, as soon as a process sets it."""
    while True:
        try:
            return _client().blocking_key_value_get(key, 1000)
        except jax.errors.JaxRuntimeError as error:
            # Short waits, so that a signal is noticed between them.
            if "DEADLINE_EXCEEDED" not in str(error):
                raise


def set_value(key: str, value: str) -> None:
    """Sets a key, which may have a value already."""
    _client().key_value_set(key, value, allow_overwrite=True)


def get_values(folder: str) -> list[str]:
    """The values of all keys in a folder, in no order."""
    return [value for _, value in _client().key_value_dir_get(f"{folder}/")]


def _client() -> Any:
    return distributed.global_state.client
