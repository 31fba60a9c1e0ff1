"""The image: instructions that exist, files that are there, extras that the package has. It is not built here."""

import configparser
import fnmatch
import json
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def instructions():
    """Pairs of an instruction and its arguments."""
    lines = (CHECKOUT / "launch/Dockerfile").read_text().splitlines()
    return [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def ignored():
    return (CHECKOUT / "launch/Dockerfile.dockerignore").read_text().split()


def test_it_begins_with_a_python_that_the_package_supports(instructions):
    name, image = instructions[0]
    assert name == "FROM"
    version = re.fullmatch(r"python:(3\.\d+)-slim", image)[1]
    assert tuple(map(int, version.split("."))) >= (3, 11)
    assert {name for name, _ in instructions} <= {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "ENTRYPOINT"}


def test_what_it_copies_is_there_and_not_ignored(instructions, ignored):
    sources = [source for name, rest in instructions if name == "COPY" for source in rest.split()[:-1]]
    assert "." in sources
    for source in sources:
        assert (CHECKOUT / source).exists()
        assert not any(fnmatch.fnmatch(source, pattern) for pattern in ignored)
    for needed in ("configs", "launch", "t5x_lite"):
        assert not any(fnmatch.fnmatch(needed, pattern) for pattern in ignored)
    assert {".git", "runs"} <= set(ignored), "neither history nor checkpoints belong in an image"


def test_its_extras_are_the_packages(instructions):
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    extras = setup["options.extras_require"]
    assert ["ARG", "EXTRA=tpu"] in instructions
    assert {"tpu", "gpu"} <= set(extras), "those that its header names"
    assert any(name == "RUN" and '".[${EXTRA}]"' in rest for name, rest in instructions)


def test_it_is_the_command(instructions):
    name, rest = instructions[-1]
    assert name == "ENTRYPOINT"
    assert json.loads(rest) == ["python", "-m", "t5x_lite"], "no shell between: SIGTERM is for Python"
