"""Odd values in every field of every config: each is refused in one sentence, or makes an experiment like others.

Values have the fields' types: tyro answers for those of other types, and `load_config` for what a config file raises.
"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import TypeCheckError

from t5x_lite.cli.arguments import load_config
from t5x_lite.errors import InputError
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.runs.preparation import check_memory, check_mesh
from t5x_lite.training import Experiment, serialization

from .mutations import ODD

pytestmark = pytest.mark.slow

ODD_FIELDS = [*ODD, (), (1, 2), (0,), ("a", "a"), ("",), (("a", "a"),), 1e-300, -(10**12), 2**62, 0.5, 1.0, "\0", "0"]


def paths(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The field names down to every field of a dataclass and of those inside it, in tuples too."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.init:
                yield (*path, field.name)
                yield from paths(getattr(value, field.name), (*path, field.name))
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from paths(item, (*path, number))


def fitting(experiment: Experiment, path: tuple) -> list[Any]:
    """The odd values that have the type of a field."""
    owner = experiment
    for name in path[:-1]:
        owner = owner[name] if isinstance(name, int) else getattr(owner, name)
    annotation = serialization._annotations(type(owner))[path[-1]]
    return [odd for odd in ODD_FIELDS if serialization._fits(odd, annotation)]


def replaced(value: Any, path: tuple, odd: Any) -> Any:
    if not path:
        return odd
    first, *rest = path
    if isinstance(value, tuple):
        return (*value[:first], replaced(value[first], rest, odd), *value[first + 1 :])
    return dataclasses.replace(value, **{first: replaced(getattr(value, first), rest, odd)})


@pytest.fixture(scope="module")
def experiments() -> dict[str, Experiment]:
    files = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))
    return {file.stem: load_config(str(file)) for file in files}


def test_experiments(experiments, draws, within_time):
    mesh = make_mesh(MeshShape())
    for draw in draws:
        name = draw.choice(list(experiments))
        path = draw.choice([path for path in paths(experiments[name]) if fitting(experiments[name], path)])
        odd = draw.choice(fitting(experiments[name], path))
        what = f"{name}: {'.'.join(map(str, path))}={odd!r:.80}"
        with within_time():
            try:
                given = replaced(experiments[name], path, odd)
                written = given.to_json()
                assert Experiment.from_json(written) == given, what
                check_mesh(given, mesh)
                check_memory(given, mesh)
            except InputError as error:
                message = str(error)
                assert message and len(message) < 3000 and "\n" not in message, what
            except TypeCheckError:
                pass  # the tests' own checks of types answer before the class does
            except Exception as error:
                raise AssertionError(what) from error


def test_written_experiments(experiments, draws, within_time):
    """What the file of a run or a checkpoint holds, with one value in it changed."""
    texts = {name: one.to_json() for name, one in experiments.items()}
    for draw in draws:
        name = draw.choice(list(texts))
        content = json.loads(texts[name])
        target, key = draw.choice(list(places(content)))
        odd = target[key] = draw.choice([*ODD, {"class": "Adam"}, {"class": 3}, [{}], {"class": "T5Config", "x": 1}])
        what = f"{name}: {key}={odd!r:.80}"
        with within_time():
            try:
                Experiment.from_json(json.dumps(content))
            except InputError as error:
                assert len(str(error)) < 6000, what
            except TypeCheckError:
                pass
            except Exception as error:
                raise AssertionError(what) from error


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything in a JSON value."""
    for key, child in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(child, dict | list):
            yield from places(child)
