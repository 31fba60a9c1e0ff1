"""Frozen dataclasses to JSON and back. Reading runs no code: it makes instances of imported classes alone."""

import dataclasses
import functools
import json
import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from t5x_lite.errors import InputError

T = TypeVar("T")


def to_json(value: Any) -> str:
    """A dataclass as indented JSON; `class` names each dataclass in it, after its module where that is not ours."""
    return json.dumps(_encode(value), indent=2)


def from_json(cls: type[T], text: str | bytes) -> T:
    """The dataclass `cls` that `to_json` wrote.

    A value's class is the annotated one or a subclass. Absent fields keep their defaults. Raises `InputError` for text
    that is not valid JSON, unknown classes and fields, and values of the wrong type.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the experiment is not valid JSON ({error}); the file may be truncated") from None
    try:
        return _decode(data, cls, "experiment")
    except RecursionError:
        raise InputError("the experiment is nested too deeply; the file may be damaged") from None


def check_types(value: Any) -> None:
    """Raises `InputError` where a field of a dataclass, or of one inside it, does not have its annotated type."""
    for field, annotation in _annotations(type(value)).items():
        _check(getattr(value, field), annotation, field)


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {field.name: _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        cls = type(value)
        is_ours = cls.__module__.partition(".")[0] == __package__.partition(".")[0]
        return {"class": cls.__name__ if is_ours else f"{cls.__module__}:{cls.__name__}"} | fields
    return [_encode(item) for item in value] if isinstance(value, tuple) else value


def _decode(data: Any, annotation: Any, path: str) -> Any:
    if isinstance(data, dict):
        return _decode_dataclass(data, annotation, path)
    value = data
    if isinstance(data, list):
        items = enumerate(zip(data, _items(annotation, len(data)), strict=True))
        value = tuple(_decode(item, of, f"{path}[{number}]") for number, (item, of) in items)
    if type(value) is int and annotation is float and abs(value) <= 1 << 53:  # beyond, not all are floats
        value = float(value)
    _check(value, annotation, path)
    return value


def _decode_dataclass(data: dict[str, Any], annotation: Any, path: str) -> Any:
    known = {cls.__name__: cls for option in _options(annotation) for cls in _subclasses(option)}
    # Of several with one name the module decides; a file may be imported under another name than it was.
    known |= {f"{cls.__module__}:{cls.__name__}": cls for option in _options(annotation) for cls in _subclasses(option)}
    full_name = data.get("class")
    module, _, name = full_name.rpartition(":") if isinstance(full_name, str) else ("", "", full_name)
    cls = known.get(full_name, known.get(name)) if isinstance(full_name, str) else None
    if cls is None and module:
        raise InputError(
            f"{path} is of class {name!r} of the module {module!r}, which is not imported; import it first, on the "
            f"command line with --import {module} or --import FILE"
        )
    if cls is None:
        ours = sorted(one for one in known if ":" not in one)
        raise InputError(f"{path} is of class {name!r}, which is not known; known are {', '.join(ours) or 'none'}")
    annotations = _annotations(cls)
    values = {field: value for field, value in data.items() if field != "class"}
    if unknown := set(values) - set(annotations):
        raise InputError(f"{path} has unknown fields {sorted(unknown)}; it may come from a newer version of t5x_lite")
    try:
        return cls(**{k: _decode(v, annotations[k], f"{path}.{k}") for k, v in values.items()})
    except TypeError as error:
        raise InputError(f"{path} is incomplete: {error}") from None


def _check(value: Any, annotation: Any, path: str) -> None:
    if dataclasses.is_dataclass(value):
        if not isinstance(value, tuple(option for option in _options(annotation) if isinstance(option, type))):
            raise InputError(f"{path} is a {type(value).__name__}; it must be a {_format(annotation)}")
        check_types(value)
    elif isinstance(value, tuple) and any(dataclasses.is_dataclass(item) for item in value):
        for number, (item, of) in enumerate(zip(value, _items(annotation, len(value)), strict=True)):
            _check(item, of, f"{path}[{number}]")
    elif not _fits(value, annotation):
        raise InputError(f"{path}={value!r} is not of type {_format(annotation)}; give a value of that type")


def _fits(value: Any, annotation: Any) -> bool:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return value in arguments
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in arguments)
    if origin is tuple:
        if not isinstance(value, tuple) or (... not in arguments and len(value) != len(arguments)):
            return False
        return all(map(_fits, value, _items(annotation, len(value))))
    if annotation in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, float | int if annotation is float else annotation)


def _items(annotation: Any, count: int) -> tuple[Any, ...]:
    """The annotations of a tuple's `count` items; `object` where no tuple is expected."""
    for option in _options(annotation):
        if get_origin(option) is tuple:
            first, *others = get_args(option)
            return (first,) * count if others == [...] else (first, *others, *[object] * count)[:count]
    return (object,) * count


def _options(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _subclasses(cls: Any) -> list[type]:
    """A dataclass and all its subclasses that have been imported."""
    if not dataclasses.is_dataclass(cls):
        return []
    return [cls, *(subclass for child in cls.__subclasses__() for subclass in _subclasses(child))]


@functools.cache
def _annotations(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def _format(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(repr, get_args(annotation)))
    return getattr(annotation, "__name__", str(annotation)).replace("NoneType", "None")
