"""The verification of processes, which are threads here: which ones are missing, and what may not differ."""

import json
import socket
import threading
import time

import pytest

from t5x_lite.errors import InputError
from t5x_lite.parallel.processes import ProcessConfig, verify_processes

FACTS = {"jax": "0.10.2", "steps": "600", "batch_size": "32"}


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def verify_all(port, facts, *, count=None, timeout=1.0, hosts=()) -> dict[int, str]:
    """The error message of each process that connects, or nothing."""
    message = {}

    def come(number):
        config = ProcessConfig(f"localhost:{port}", count or len(facts), number)
        try:
            verify_processes(config, facts[number], timeout=timeout, hosts=hosts)
            message[number] = ""
        except InputError as error:
            message[number] = str(error)

    threads = [threading.Thread(target=come, args=(number,)) for number in facts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert set(message) == set(facts)
    return message


def test_all_connect_and_agree(port):
    began = time.monotonic()
    assert verify_all(port, dict.fromkeys(range(5), FACTS), timeout=20) == dict.fromkeys(range(5), "")
    assert time.monotonic() - began < 10, "none waits for the timeout"


def test_the_port_is_free_afterwards(port):
    for _ in range(2):
        assert verify_all(port, {0: FACTS, 1: FACTS}, timeout=10) == {0: "", 1: ""}


def test_missing_processes_are_named_to_all_others(port):
    message = verify_all(port, {0: FACTS, 2: FACTS}, count=5, hosts=("a", "b", "c", "d", "e"))
    assert message[0] == message[2]
    assert f"3 of 5 processes did not come to localhost:{port} within 1 s: " in message[0]
    assert "process 1 (b), process 3 (d), process 4 (e);" in message[0]


def test_what_differs_is_named_with_both_values(port):
    message = verify_all(port, {0: FACTS, 1: FACTS | {"jax": "0.11.0", "steps": "700"}, 2: FACTS}, timeout=10)
    assert len(set(message.values())) == 1
    name = socket.gethostname()
    assert f"process 1 on {name}" in message[2]
    assert f"process 0 on {name} in jax (0.11.0 there, 0.10.2 here), steps (700 there, 600 here);" in message[2]
    assert "process 2" not in message[2]


def test_long_lists_are_shortened(port):
    facts = {number: {f"field{i}": str(number) for i in range(9)} for number in range(6)}
    message = verify_all(port, facts, timeout=10)[0]
    assert message.count("differs from") == 3
    assert "field2 (1 there, 0 here) and 6 more" in message
    assert "field3" not in message
    assert "2 more differ" in message


def test_another_number_of_processes(port):
    message = {}

    def come(number, count):
        try:
            verify_processes(ProcessConfig(f"localhost:{port}", count, number), FACTS, timeout=5)
        except InputError as error:
            message[number] = str(error)

    threads = [threading.Thread(target=come, args=pair) for pair in ((0, 2), (1, 4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert "num_processes (4 there, 2 here)" in message[0] == message[1]


def test_two_with_one_number(port):
    message = []

    def come(number):
        try:
            verify_processes(ProcessConfig(f"localhost:{port}", 4, number), FACTS, timeout=2)
        except InputError as error:
            message.append(str(error))

    threads = [threading.Thread(target=come, args=(number,)) for number in (0, 1, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert any("process_id=1 came twice" in message for message in message)


def test_a_restarted_process_replaces_its_first_connection(port):
    """Its first connection is gone, as after a kill."""

    def come_and_go():
        while True:
            try:
                with socket.create_connection(("localhost", port)) as connection:
                    greeting = {"process_id": 1, "host": "gone", "facts": {}}
                    connection.sendall(json.dumps(greeting).encode() + b"\n")
                return
            except OSError:
                time.sleep(0.01)

    gone = threading.Thread(target=come_and_go)
    gone.start()
    message = {}

    def come(number, delay):
        time.sleep(delay)
        try:
            verify_processes(ProcessConfig(f"localhost:{port}", 3, number), FACTS, timeout=10)
            message[number] = ""
        except InputError as error:
            message[number] = str(error)

    threads = [threading.Thread(target=come, args=pair) for pair in ((0, 0), (1, 0.5), (2, 1.0))]
    for thread in threads:
        thread.start()
    for thread in (gone, *threads):
        thread.join(30)
    assert message == {0: "", 1: "", 2: ""}


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"\n", b'{"process_id": "x"}\n', b"[1]\n"])
def test_other_programs_are_ignored(port, noise):
    def call():
        while True:
            try:
                with socket.create_connection(("localhost", port)) as connection:
                    connection.sendall(noise)
                return
            except OSError:
                time.sleep(0.01)

    program = threading.Thread(target=call)
    program.start()
    message = {}

    def come(number, delay):
        time.sleep(delay)
        verify_processes(ProcessConfig(f"localhost:{port}", 2, number), FACTS, timeout=10)
        message[number] = True

    threads = [threading.Thread(target=come, args=pair) for pair in ((0, 0), (1, 0.3))]
    for thread in threads:
        thread.start()
    for thread in (program, *threads):
        thread.join(30)
    assert message == {0: True, 1: True}


@pytest.mark.parametrize("host", ["localhost", "no-such-host.invalid"])
def test_a_coordinator_that_cannot_be_reached(port, host):
    with pytest.raises(
        InputError, match=rf"coordinator={host}:{port} cannot be reached from .* within 0.3 s .*; start"
    ):
        verify_processes(ProcessConfig(f"{host}:{port}", 2, 1), FACTS, timeout=0.3)


def test_a_port_that_is_taken(port):
    with socket.create_server(("", port)), pytest.raises(InputError, match=f"port {port} cannot be opened here"):
        verify_processes(ProcessConfig(f"localhost:{port}", 2, 0), FACTS, timeout=0.3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("localhost", 2, 0), "coordinator='localhost' is not a valid HOST:PORT"),
        (("localhost:http", 2, 0), "coordinator='localhost:http' is not a valid HOST:PORT"),
        (("localhost:70000", 2, 0), "is not a valid HOST:PORT"),
        ((":8000", 2, 0), "is not a valid HOST:PORT"),
        (("localhost:8000", 0, 0), "num_processes=0 is too small"),
        (("localhost:8000", 2, 2), "process_id=2 is not one of num_processes=2; choose one from 0 to 1"),
        (("localhost:8000", 2, -1), "process_id=-1"),
    ],
)
def test_invalid_configurations(arguments, message):
    with pytest.raises(InputError, match=message):
        ProcessConfig(*arguments)


def test_ipv6_addresses():
    assert ProcessConfig("[::1]:8000", 2, 0).address == ("::1", 8000)
