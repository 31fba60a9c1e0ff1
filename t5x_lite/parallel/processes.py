"""The roll call before a run on several hosts: who came, and whether all are about to do the same.

It is held over plain sockets at the coordinator's address, before JAX opens its own service there: where a process does
not come, that service ends all others with a stack trace, and names nobody.
"""

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import jax

from t5x_lite.errors import InputError
from t5x_lite.parallel import hosts

Facts = dict[str, str]
"""What must be the same everywhere, by name."""

_ANSWER_SECONDS = 10  # for what is answered at once, from another continent too
_SHOWN = 3


@dataclass(frozen=True)
class Place:
    """A process's place among those of a run."""

    coordinator: str
    """HOST:PORT of process 0, as all others reach it."""
    num_processes: int
    process_id: int
    """0 to num_processes - 1."""
    local_device_ids: tuple[int, ...] | None = None
    """The devices of its host that are its own; None means all."""

    def __post_init__(self) -> None:
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise InputError(
                f"coordinator={self.coordinator!r} is no HOST:PORT; give process 0's, such as 10.0.0.2:8476"
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
        """The coordinator's host and port."""
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)


def hold(place: Place, facts: Facts, *, timeout: float, hosts: Sequence[str] = ()) -> None:
    """Returns on every process once all have come and their facts agree.

    Args:
      place: this process's.
      facts: of this process.
      timeout: seconds to wait for the others.
      hosts: names of all processes' hosts, where they are known, to name those that do not come.

    Raises:
      InputError: on every process that came, one sentence: who did not come, whose facts differ and in what; or that
        the coordinator cannot be reached.
    """
    facts = {"num_processes": str(place.num_processes)} | facts
    problem = _call(place, facts, timeout, hosts) if place.process_id == 0 else _answer(place, facts, timeout)
    if problem:
        raise InputError(problem)


@dataclass(frozen=True)
class _Guest:
    """A process that came."""

    process_id: int
    host: str
    facts: Facts
    connection: socket.socket

    @property
    def is_there(self) -> bool:
        """Whether it still waits at the other end."""
        self.connection.setblocking(False)
        try:
            return bool(self.connection.recv(1))
        except BlockingIOError:
            return True
        except OSError:
            return False


def _call(place: Place, facts: Facts, timeout: float, hosts: Sequence[str]) -> str:
    """Process 0's part; returns what is wrong, which all others are told too."""
    deadline = time.monotonic() + timeout
    guests: dict[int, _Guest] = {}
    problems: list[str] = []
    with ExitStack() as open_until_stopped:
        listener = open_until_stopped.enter_context(_listen(place))
        while len(guests) < place.num_processes - 1 and (left := deadline - time.monotonic()) > 0:
            listener.settimeout(left)
            try:
                connection = open_until_stopped.enter_context(listener.accept()[0])
            except TimeoutError:
                break
            guest = _read_guest(connection)
            if guest is None:
                continue
            before = guests.get(guest.process_id)
            if guest.process_id == 0 or (before is not None and before.is_there):
                other = socket.gethostname() if before is None else before.host
                problems.append(f"process_id={guest.process_id} came twice, from {other} and from {guest.host}")
            guests[guest.process_id] = guest
        absent = [number for number in range(1, place.num_processes) if number not in guests]
        if absent:
            problems.append(
                f"{len(absent)} of {place.num_processes} processes did not come to {place.coordinator} within "
                f"{timeout:g} s: {_name(absent, hosts)}"
            )
        problems += _differences(facts, [guests[number] for number in sorted(guests)])
        problem = ""
        if problems:
            problem = f"{'; '.join(problems)}; start all of them with one command and one set of packages"
        for guest in guests.values():
            _tell(guest.connection, problem)
    return problem


def _listen(place: Place) -> socket.socket:
    port = place.address[1]
    try:
        if socket.has_dualstack_ipv6():
            try:
                return socket.create_server(
                    ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=place.num_processes
                )
            except OSError as error:
                if isinstance(error, PermissionError) or error.errno == errno.EADDRINUSE:
                    raise
        return socket.create_server(("", port), backlog=place.num_processes)
    except OSError as error:
        raise InputError(
            f"coordinator={place.coordinator}: port {port} cannot be opened here ({error.strerror}); choose another one"
        ) from None


def _read_guest(connection: socket.socket) -> _Guest | None:
    """None for what says nothing that can be understood."""
    connection.settimeout(_ANSWER_SECONDS)
    try:
        said = json.loads(connection.makefile("rb").readline(1 << 20))
        return _Guest(int(said["process_id"]), str(said["host"]), dict(said["facts"]), connection)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _tell(connection: socket.socket, problem: str) -> None:
    connection.settimeout(_ANSWER_SECONDS)
    with suppress(OSError):  # it went; JAX's own service will notice
        connection.sendall(json.dumps({"problem": problem}).encode() + b"\n")


def _name(numbers: Sequence[int], hosts: Sequence[str]) -> str:
    shown = [f"process {number}" + (f" ({hosts[number]})" if hosts else "") for number in numbers[: 3 * _SHOWN]]
    return ", ".join(shown) + (f" and {len(numbers) - len(shown)} more" if len(numbers) > len(shown) else "")


def _differences(facts: Facts, guests: Sequence[_Guest]) -> list[str]:
    problems = []
    for guest in guests:
        differing = [name for name in facts | guest.facts if facts.get(name) != guest.facts.get(name)]
        if differing:
            fields = ", ".join(
                f"{name} ({guest.facts.get(name, 'none')} there, {facts.get(name, 'none')} here)"
                for name in differing[:_SHOWN]
            )
            more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
            problems.append(
                f"process {guest.process_id} on {guest.host} differs from process 0 on {socket.gethostname()} in "
                f"{fields}{more}"
            )
    return problems[:_SHOWN] + ([f"{len(problems) - _SHOWN} more differ"] if len(problems) > _SHOWN else [])


def _answer(place: Place, facts: Facts, timeout: float) -> str:
    """The part of all others; returns what process 0 says is wrong."""
    deadline = time.monotonic() + timeout
    said = {"process_id": place.process_id, "host": f"{socket.gethostname()} (pid {os.getpid()})", "facts": facts}
    while True:
        try:
            with socket.create_connection(place.address, timeout=_ANSWER_SECONDS) as connection:
                connection.sendall(json.dumps(said).encode() + b"\n")
                # Process 0 may have begun to wait only now.
                connection.settimeout(timeout + _ANSWER_SECONDS)
                return str(json.loads(connection.makefile("rb").readline())["problem"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if time.monotonic() > deadline:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else "no answer"
                return (
                    f"coordinator={place.coordinator} cannot be reached from {socket.gethostname()} within {timeout:g} "
                    f"s ({reason}): process 0 did not come, or the address is not its own; start it, or correct it"
                )
        time.sleep(min(1.0, max(timeout / 20, 0.02)))


_LOOK_SECONDS = 0.2
_ASK_EVERY = 5  # looks at one's own between two looks at the others
_ASKED, _BOUNDS = "t5x_lite/stop/asked", "t5x_lite/stop/bounds"


class PreemptionSync:
    """Watches, in a thread of its own, whether any process is asked to stop, and settles the step before which all do.

    Each process says which step it has not begun yet, and begins no further one until all have said so; the largest of
    these numbers it is. The thread says it, not the loop: the loop may be waiting for a step that others still have to
    begin.

    Args:
      asked: whether this process was asked to stop.
      tell: is called in the thread when another one was.
    """

    def __init__(self, asked: Callable[[], bool], tell: Callable[[], None]):
        self._asked, self._tell = asked, tell
        self._process, self._processes = jax.process_index(), jax.process_count()
        self._change = threading.Condition()
        self._held = False
        self._not_begun = 0
        self._bound: int | None = None
        self._stop: int | None = None
        self._error: Exception | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="common stop")
        self._thread.start()

    def hold(self) -> None:
        """From now on every process asks `before` each step; returns when all do."""
        self._held = True
        hosts.exchange("")

    def before(self, step: int) -> bool:
        """Whether all stop before this step; else it is begun."""
        with self._change:
            while self._bound is not None and step >= self._bound and self._stop is None and self._error is None:
                self._change.wait(_LOOK_SECONDS)
            if self._error is not None:
                raise self._error
            if self._stop is not None and step >= self._stop:
                return True
            self._not_begun = step + 1
            return False

    def tell_others(self) -> None:
        """Has the others stop where this process has already gone."""
        hosts.tell(_ASKED, "")

    def close(self) -> None:
        """Ends the watching."""
        self._closed.set()
        self._thread.join(5)

    def _watch(self) -> None:
        try:
            looks = 0
            while not self._closed.wait(_LOOK_SECONDS):
                looks += 1
                if self._asked():
                    if self._held:
                        self.tell_others()
                        self._settle()
                    return
                if looks % _ASK_EVERY == 0 and hosts.find(_ASKED) is not None:
                    self._tell()
                    if self._held:
                        self._settle()
                    return
        except Exception as error:
            with self._change:
                self._error = error
                self._change.notify_all()

    def _settle(self) -> None:
        with self._change:
            self._bound = self._not_begun
        hosts.tell(f"{_BOUNDS}/{self._process}", json.dumps(self._bound))
        while len(said := hosts.find_all(_BOUNDS)) < self._processes:
            if self._closed.wait(_LOOK_SECONDS):
                return
        with self._change:
            self._stop = max(map(json.loads, said))
            self._change.notify_all()
