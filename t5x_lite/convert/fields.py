"""Fields of a config.json: each kind is read into our terms and written from them in one place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from t5x_lite.convert.table import Tensors
from t5x_lite.errors import InputError

ACTIVATIONS = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh", "gelu_accurate"),
    "relu": ("relu",),
    "silu": ("silu", "swish"),
    "tanh": ("tanh",),
}
"""Their names of each of our activations that mean the same; the first is the one that is written."""
OUTPUT = "lm_head.weight"
"""The kernel that scores tokens, where it is no embedding."""
OURS = "t5x_lite"
"""Where a config.json keeps fields of ours that theirs has no place for, under a name that theirs ignores."""


class Field(Protocol):
    """What a config.json says, and the fields of ours that say the same."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        """Ours, from a config.json and the tensors beside it. Raises `InputError` for what we do not have."""

    def write(self, config: Any, family: str) -> dict[str, Any]:
        """Theirs. Raises `InputError` for what Hugging Face's `family` has no place for."""


@dataclass(frozen=True)
class Numbers:
    """Numbers that have other names there."""

    names: Mapping[str, str]
    """Ours, by theirs."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What a config.json means where it is silent; what has no default must be there."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        values = {name: self.defaults.get(name) if theirs.get(name) is None else theirs[name] for name in self.names}
        if missing := [name for name, value in values.items() if value is None]:
            raise InputError(
                f"config.json lacks {', '.join(missing)}; it is not one of model_type={theirs['model_type']!r}"
            )
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{name}={value!r} in config.json is no number; the file is damaged: fetch it again")
        return {self.names[name]: value for name, value in values.items()}

    def write(self, config: Any, family: str) -> dict[str, Any]:
        return {theirs: getattr(config, ours) for theirs, ours in self.names.items()}


@dataclass(frozen=True)
class ActivationName:
    """The activation, whose names are other ones there."""

    theirs: str = "hidden_act"
    default: str = "gelu"
    """What a config.json means where it is silent."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: ACTIVATIONS)
    """Theirs, by ours."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        name = theirs.get(self.theirs) or self.default
        for ours, known in self.names.items():
            if name in known:
                return {"activation": ours}
        every = ", ".join(known for group in self.names.values() for known in group)
        raise InputError(f"{self.theirs}={name!r} in config.json is unknown; known are {every}")

    def write(self, config: Any, family: str) -> dict[str, Any]:
        check_exportable(family, "activation", config.activation, *self.names)
        return {self.theirs: self.names[config.activation][0]}


@dataclass(frozen=True)
class Constants:
    """What every config.json of ours says, and every other one unless it is silent."""

    values: Mapping[str, Any]
    checked: bool = True
    """Whether a config.json that says something else describes an architecture that we do not have."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        if self.checked:
            refuse(theirs, **self.values)
        return {}

    def write(self, config: Any, family: str) -> dict[str, Any]:
        return dict(self.values)


@dataclass(frozen=True)
class Only:
    """Fields of ours that have one value there, of which a config.json says nothing."""

    values: Mapping[str, Any]

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        return dict(self.values)

    def write(self, config: Any, family: str) -> dict[str, Any]:
        for name, value in self.values.items():
            check_exportable(family, name, getattr(config, name), value)
        return {}


def our_fields(theirs: dict[str, Any]) -> dict[str, Any]:
    """What an export of ours wrote into a config.json for itself."""
    fields = theirs.get(OURS)
    return fields if isinstance(fields, dict) else {}


def is_tied(theirs: dict[str, Any]) -> bool:
    """Whether a config.json ties the output to the token embedding."""
    return theirs.get("tie_word_embeddings") is not False


def check_exportable(family: str, name: str, value: Any, *allowed: Any) -> None:
    """Raises `InputError` where the value of a field of ours is none of those that Hugging Face's `family` has."""
    if value not in allowed:
        raise InputError(
            f"{name}={value!r} has no place in Hugging Face's {family}, which takes {' or '.join(map(str, allowed))}; "
            "export is not possible"
        )


def refuse(theirs: dict[str, Any], **expected: Any) -> None:
    """Raises `InputError` where a field says something else than the value given for it, which silence means too."""
    for name, value in expected.items():
        if name in theirs and theirs[name] is not None and theirs[name] != value:
            raise InputError(
                f"{name}={theirs[name]} in config.json is not one that we have; choose a model with {name}={value}"
            )


def check_output(tensors: Tensors, tied: bool) -> None:
    """Raises `InputError` where config.json says that the output is no embedding, and there is none."""
    if not tied and OUTPUT not in tensors:
        raise InputError(
            f"the checkpoint has no {OUTPUT}, though tie_word_embeddings=false in config.json says that its output is "
            "no embedding; save it from the class that has the language model's head"
        )
