"""Verifies the processes of a run before it begins: that all connect, and that all are about to do the same.

They use plain sockets at the coordinator's address, before JAX opens its own service there: where a process does not
connect, that service ends all others with a stack trace, and names none.
"""

import errno
import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from t5x_lite.errors import InputError

Facts = dict[str, str]
"""Values that must be equal in all processes, by name."""

_ANSWER_SECONDS = 10  # of a process that answers at once, from another continent too
_MAX_SHOWN = 3


@dataclass(frozen=True)
class ProcessConfig:
    """One of a run's processes, and how it reaches the others."""

    coordinator: str
    """HOST:PORT of process 0, as all others reach it."""
    num_processes: int
    process_id: int
    """0 to num_processes - 1."""
    local_device_ids: tuple[int, ...] | None = None
    """The devices of its host that it uses; None means all."""

    def __post_init__(self) -> None:
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise InputError(
                f"coordinator={self.coordinator!r} is not a valid HOST:PORT; give process 0's, such as 10.0.0.2:8476"
            )
        if self.num_processes < 1:
            raise InputError(f"num_processes={self.num_processes} is too small; give how many processes there are")
        if not 0 <= self.process_id < self.num_processes:
            raise InputError(
                f"process_id={self.process_id} is not one of num_processes={self.num_processes}; choose one from 0 to "
                f"{self.num_processes - 1}"
            )

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)


def verify_processes(config: ProcessConfig, facts: Facts, *, timeout: float, hosts: Sequence[str] = ()) -> None:
    """Returns on every process once all have connected and their facts agree.

    Args:
      config: this process.
      facts: of this process.
      timeout: seconds to wait for the others.
      hosts: names of all processes' hosts, where they are known, to name those that do not connect.

    Raises:
      InputError: on every process that connects, one sentence: which did not, whose facts differ and in what; or that
        the coordinator cannot be reached.
    """
    facts = {"num_processes": str(config.num_processes)} | facts
    if config.process_id == 0:
        problem = _verify_all(config, facts, timeout, hosts)
    else:
        problem = _ask_coordinator(config, facts, timeout)
    if problem:
        raise InputError(problem)


@dataclass(frozen=True)
class _Peer:
    process_id: int
    host: str
    facts: Facts
    connection: socket.socket

    @property
    def is_connected(self) -> bool:
        self.connection.setblocking(False)
        try:
            return bool(self.connection.recv(1))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def differences(self, facts: Facts) -> str:
        """How its facts differ from those of process 0, as a sentence; empty where they do not."""
        fields = [
            f"{name} ({self.facts.get(name, 'none')} there, {facts.get(name, 'none')} here)"
            for name in facts | self.facts
            if facts.get(name) != self.facts.get(name)
        ]
        more = f" and {len(fields) - _MAX_SHOWN} more" if len(fields) > _MAX_SHOWN else ""
        names = f"process {self.process_id} on {self.host} differs from process 0 on {socket.gethostname()} in "
        return f"{names}{', '.join(fields[:_MAX_SHOWN])}{more}" if fields else ""


def _verify_all(config: ProcessConfig, facts: Facts, timeout: float, hosts: Sequence[str]) -> str:
    """Process 0's side; returns what is wrong, after sending it to all others."""
    deadline = time.monotonic() + timeout
    peers: dict[int, _Peer] = {}
    problems: list[str] = []
    with ExitStack() as sockets:
        listener = sockets.enter_context(_listen(config))
        while len(peers) < config.num_processes - 1 and (left := deadline - time.monotonic()) > 0:
            listener.settimeout(left)
            try:
                connection = sockets.enter_context(listener.accept()[0])
            except TimeoutError:
                break
            connection.settimeout(_ANSWER_SECONDS)
            try:
                greeting = json.loads(connection.makefile("rb").readline(1 << 20))
                number, host = int(greeting["process_id"]), str(greeting["host"])
                peer = _Peer(number, host, dict(greeting["facts"]), connection)
            except (OSError, ValueError, KeyError, TypeError):
                continue  # some other program
            before = peers.get(number)
            if number == 0 or (before is not None and before.is_connected):
                other = socket.gethostname() if before is None else before.host
                problems.append(f"process_id={number} came twice, from {other} and from {host}")
            peers[number] = peer
        if absent := [number for number in range(1, config.num_processes) if number not in peers]:
            shown = [f"process {number}" + (f" ({hosts[number]})" if hosts else "") for number in absent[:9]]
            more = f" and {len(absent) - 9} more" if len(absent) > 9 else ""
            problems.append(
                f"{len(absent)} of {config.num_processes} processes did not come to {config.coordinator} within "
                f"{timeout:g} s: {', '.join(shown)}{more}"
            )
        differing = [message for _, peer in sorted(peers.items()) if (message := peer.differences(facts))]
        problems += differing[:_MAX_SHOWN]
        if len(differing) > _MAX_SHOWN:
            problems.append(f"{len(differing) - _MAX_SHOWN} more differ")
        problem = ""
        if problems:
            problem = f"{'; '.join(problems)}; start all of them with one command and one set of packages"
        for peer in peers.values():
            peer.connection.settimeout(_ANSWER_SECONDS)
            with suppress(OSError):  # it ended; JAX's own service will notice
                peer.connection.sendall(json.dumps({"problem": problem}).encode() + b"\n")
    return problem


def _listen(config: ProcessConfig) -> socket.socket:
    port = config.address[1]
    try:
        if socket.has_dualstack_ipv6():
            try:
                return socket.create_server(
                    ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=config.num_processes
                )
            except OSError as error:
                if isinstance(error, PermissionError) or error.errno == errno.EADDRINUSE:
                    raise
        return socket.create_server(("", port), backlog=config.num_processes)
    except OSError as error:
        raise InputError(
            f"coordinator={config.coordinator}: port {port} cannot be opened here ({error.strerror}); choose another"
        ) from None


def _ask_coordinator(config: ProcessConfig, facts: Facts, timeout: float) -> str:
    """The side of all others; returns what process 0 finds wrong."""
    deadline, here = time.monotonic() + timeout, socket.gethostname()
    greeting = {"process_id": config.process_id, "host": f"{here} (pid {os.getpid()})", "facts": facts}
    while True:
        try:
            with socket.create_connection(config.address, timeout=_ANSWER_SECONDS) as connection:
                connection.sendall(json.dumps(greeting).encode() + b"\n")
                # Process 0 may have begun to wait only now.
                connection.settimeout(timeout + _ANSWER_SECONDS)
                return str(json.loads(connection.makefile("rb").readline())["problem"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if time.monotonic() > deadline:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else "no answer"
                return (
                    f"coordinator={config.coordinator} cannot be reached from {here} within {timeout:g} s ({reason}): "
                    "process 0 did not come, or the address is not its own; start it, or correct it"
                )
        time.sleep(min(1.0, max(timeout / 20, 0.02)))
