"""The processes of a run, on one host or on many: how they find each other, and how they agree.

They communicate through the keys and values that JAX's own service keeps at process 0, not through their accelerators
as `multihost_utils` does: no mesh is needed, waiting has no limit, and a message names the host that differs. All
functions are for every process to call, in the same order; with one process they return at once.
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

# JAX has no public door to the keys and values that its processes share; Orbax takes this one too. It is imported here,
# not where it is used: in a thread it may meet the moment in which etils makes all that is imported lazy.
from jax._src import distributed

from t5x_lite.errors import InputError
from t5x_lite.parallel.processes import Facts, ProcessConfig, verify_processes

HEARTBEAT_SECONDS = 30
"""After so long without a sign of life a process counts as dead, which ends all others."""

_JOIN_SECONDS = 120  # once all processes are verified
_POLL_SECONDS = 0.05
_LEAVE_SECONDS = 15
_ROOT = "t5x_lite"
_calls = itertools.count()


class OtherProcessError(RuntimeError):
    """Process 0 failed at what the others waited for."""


def detect_process(timeout: float) -> ProcessConfig | None:
    """Which process this is, as SLURM, GKE or a Cloud TPU pod gives it; None for a process that is alone.

    `timeout` is for the coordinator's name to become known, in seconds; `InputError` where it does not.
    """
    # JAX has no public door to what it knows of these clusters without starting its service at once.
    from jax._src.clusters import GceTpuCluster, GkeTpuCluster, SlurmCluster

    on_tpu = "tpu" in (jax.config.jax_platforms or "tpu")
    for cluster in (SlurmCluster, *((GkeTpuCluster, GceTpuCluster) if on_tpu else ())):
        if cluster.is_env_present():
            if cluster.get_process_count() == 1:
                return None
            address = _address(cluster, timeout)
            # SLURM gives every process of a host one of its GPUs.
            local = cluster.get_local_process_id()
            devices = None if local is None else (local,)
            return ProcessConfig(address, cluster.get_process_count(), cluster.get_process_id(), devices)
    return None


def _address(cluster: Any, timeout: float) -> str:
    try:
        return cluster.get_coordinator_address(int(timeout), os.environ.get("JAX_COORDINATOR_PORT"))
    except RuntimeError as error:
        raise InputError(
            f"process 0's host is not known after {timeout:g} s ({error}); look whether it started, or say where it is "
            "with --coordinator, --num-processes and --process-id"
        ) from None


@contextmanager
def joined(config: ProcessConfig | None, facts: Facts, *, timeout: float) -> Iterator[None]:
    """Within it this process is one of those of a run; nothing of JAX may have run before.

    Args:
      config: this process; None where it is alone.
      facts: what must be the same in all processes.
      timeout: seconds to wait for the others.

    Raises:
      InputError: on all processes that came: some did not, or differ in facts or devices.
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
    """Whether this process is the one that writes what is written once: logs, the token store, the tokenizer."""
    return jax.process_index() == 0


def name_of_host() -> str:
    """This host's name, for messages."""
    return socket.gethostname()


def exchange(value: str) -> list[str]:
    """What each process gave, by process."""
    if jax.process_count() == 1:
        return [value]
    client, folder, count = _client(), f"{_ROOT}/{next(_calls)}", jax.process_count()
    client.key_value_set(f"{folder}/from/{jax.process_index()}", value)
    if not is_first():
        return json.loads(wait_for(f"{folder}/all"))
    # One process collects, or a pod of thousands would ask for a square of that.
    while len(found := client.key_value_dir_get(f"{folder}/from/")) < count:
        time.sleep(_POLL_SECONDS)
    values = [given for _, given in sorted(found, key=lambda pair: int(pair[0].rpartition("/")[2]))]
    client.key_value_set(f"{folder}/all", json.dumps(values))
    return values


def check_alike(facts: Facts, remedy: str) -> None:
    """Raises `InputError` on every process if one has other facts than process 0; it names that one."""
    everyone = [json.loads(message) for message in exchange(json.dumps([name_of_host(), facts]))]
    host, expected = everyone[0]
    for number, (other, found) in enumerate(everyone):
        for name, value in found.items():
            if value != expected[name]:
                raise InputError(
                    f"{name} is {value} for process {number} on {other}, and {expected[name]} for process 0 on {host}; "
                    f"{remedy}"
                )


@contextmanager
def in_turn() -> Iterator[None]:
    """Process 0 goes through the body first, then all others at once.

    What process 0 raises is raised by the others in their config: `InputError` as itself. Where it was asked to stop,
    they wait on until they are too.
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
        _client().key_value_set(key, json.dumps((type(error).__name__, str(error))))
        raise
    _client().key_value_set(key, json.dumps(("", "")))


def leave(status: int) -> None:
    """Ends this process at once with an exit status that says it failed; the others need not wait for it.

    Where all fail alike, process 0 goes last: it holds the coordination service, without which the others are aborted
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
                time.sleep(0.05)
            time.sleep(0.2)  # between the last one's word and its end
    os._exit(status)


def wait_for(key: str) -> str:
    """The value that a process gives to a key, as soon as it does."""
    while True:
        try:
            return _client().blocking_key_value_get(key, 1000)
        except jax.errors.JaxRuntimeError as error:
            # Short waits, so that a signal is noticed between them.
            if "DEADLINE_EXCEEDED" not in str(error):
                raise


def set_value(key: str, value: str) -> None:
    """Gives a key a value, which it may have had before."""
    _client().key_value_set(key, value, allow_overwrite=True)


def get_values(folder: str) -> list[str]:
    """The values of all keys below one, in no order."""
    return [value for _, value in _client().key_value_dir_get(f"{folder}/")]


def try_get_value(key: str) -> str | None:
    """The value of a key, None so long as it has none."""
    try:
        return _client().key_value_try_get(key)
    except jax.errors.JaxRuntimeError as error:
        if "NOT_FOUND" not in str(error):
            raise
        return None


def _client() -> Any:
    return distributed.global_state.client
