"""The processes of a run, on one host or on many: how they find each other, and how they agree.

They communicate through the key-value store of JAX's coordination service at process 0, not through their accelerators
as `multihost_utils` does: no mesh is needed, waiting has no limit, and a message names the host that differs. Every
process calls these functions in the same order; with one process they return at once.
"""

import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax

# JAX has no public interface to its key-value store; Orbax imports this module too. It is imported here, since a thread
# may import it while etils makes all imports lazy.
from jax._src import distributed

from t5x_lite.errors import InputError
from t5x_lite.parallel.processes import Facts, ProcessConfig, verify_processes

HEARTBEAT_SECONDS = 30
"""A process counts as dead after so long without a heartbeat, which ends all others."""

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
def joined(config: ProcessConfig | None, facts: Facts, *, timeout: float) -> Iterator[None]:
    """A context in which this process belongs to a run of several; nothing of JAX may have run before.

    Args:
      config: this process; None where it is alone.
      facts: values that must be equal in all processes.
      timeout: seconds to wait for the others.

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
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
    )
    device = jax.local_devices()[0]
    check_alike({"devices": f"{jax.local_device_count()} {device.device_kind}"}, "give every host the same devices")
    yield
    # A process that ends otherwise does not wait for the others here: see `leave`.
    jax.distributed.shutdown()


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
            set_value(f"{_ROOT}/leave/{state.process_id}", "")
        else:
            deadline = time.monotonic() + _LEAVE_SECONDS
            while len(get_values(f"{_ROOT}/leave")) < state.num_processes - 1 and time.monotonic() < deadline:
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
