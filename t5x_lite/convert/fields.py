"""Fields of a config.json, read into our terms."""

from typing import Any

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


def our_fields(theirs: dict[str, Any]) -> dict[str, Any]:
    """What an export of ours wrote into a config.json for itself."""
    fields = theirs.get(OURS)
    return fields if isinstance(fields, dict) else {}


def says_tied(theirs: dict[str, Any]) -> bool:
    """Whether a config.json ties the output to the token embedding."""
    return theirs.get("tie_word_embeddings") is not False


def read_numbers(theirs: dict[str, Any], fields: dict[str, str], defaults: dict[str, Any]) -> dict[str, Any]:
    """Our numbers from theirs, by the names in `fields`; those without a default must be there.

    Raises `InputError` for what is missing or no number.
    """
    values = {name: defaults.get(name) if theirs.get(name) is None else theirs[name] for name in fields}
    if missing := [name for name, value in values.items() if value is None]:
        raise InputError(
            f"config.json lacks {', '.join(missing)}; it is not one of model_type={theirs['model_type']!r}"
        )
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name}={value!r} in config.json is no number; the file is damaged: fetch it again")
    return {fields[name]: value for name, value in values.items()}


def read_activation(
    theirs: dict[str, Any],
    name: str = "hidden_act",
    *,
    default: str = "gelu",
    names: dict[str, tuple[str, ...]] = ACTIVATIONS,
) -> str:
    """Our name of the activation in the field `name`, which is `default` where it is silent."""
    theirs_name = theirs.get(name) or default
    for ours, known in names.items():
        if theirs_name in known:
            return ours
    every = ", ".join(known for group in names.values() for known in group)
    raise InputError(f"{name}={theirs_name!r} in config.json is unknown; known are {every}")


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
