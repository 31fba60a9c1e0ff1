import dataclasses
from typing import Annotated, Literal

import pytest
import tyro

from t5x_lite.errors import InputError
from t5x_lite.training import serialization
from t5x_lite.validation import NonNegative, OneOf, Positive, PositiveFloat, Range, Rate, Validated, check_fields


@dataclasses.dataclass(frozen=True)
class Group:
    every: NonNegative = 0


@dataclasses.dataclass(frozen=True)
class Sizes(Validated):
    num_heads: Positive = 8
    """Attention heads a layer."""
    head_dim: Positive | None = None
    rate: Rate = 0.1
    scale: PositiveFloat = 1.0
    share: Annotated[float, Range(gt=0, le=1)] = 1.0
    norm: Literal["rms", "layer"] = "rms"
    activation: Annotated[str, OneOf(("relu", "gelu"))] = "relu"
    either: Literal["all"] | Positive = "all"
    group: Group = Group()


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("num_heads", 0, "num_heads=0 is too small; choose 1 or more"),
        ("num_heads", "8", "num_heads='8' is not a number"),
        ("head_dim", -1, "head_dim=-1 is too small; choose 1 or more"),
        ("rate", 1.0, r"rate=1.0 is not in \[0, 1\); choose e.g. 0.1"),
        ("rate", -0.1, r"rate=-0.1 is not in \[0, 1\)"),
        ("rate", float("nan"), "rate=nan is not finite; choose e.g. 0.1"),
        ("scale", float("inf"), "scale=inf is not finite; choose a finite number"),
        ("head_dim", 2**31, "head_dim=2147483648 is too large; choose one below 2,147,483,648"),
        ("scale", 0.0, "scale=0.0 is not above 0"),
        ("share", 1.5, r"share=1.5 is not in \(0, 1\]"),
        ("norm", "batch", "norm='batch' is unknown; choose rms or layer"),
        ("activation", "swiglu", "activation='swiglu' is unknown; choose relu or gelu"),
    ],
)
def test_a_value_outside_its_range_is_named_with_its_field_and_a_remedy(field, value, message):
    with pytest.raises(InputError, match=message):
        Sizes(**{field: value})


def test_values_in_their_ranges_pass_and_none_where_it_may_stand():
    assert Sizes(head_dim=4, rate=0.0, share=0.5, either=3).head_dim == 4
    assert Sizes(head_dim=None, either="all").either == "all"


def test_a_group_is_named_before_its_field():
    with pytest.raises(InputError, match="evaluation.every=-1 is too small; choose 0 or more"):
        check_fields(Group(-1), "evaluation.")


def test_types_json_and_the_command_line_see_the_plain_types(capsys):
    serialization.check_types(Sizes())
    assert serialization.from_json(Sizes, serialization.to_json(Sizes(num_heads=2))) == Sizes(num_heads=2)
    with pytest.raises(InputError, match="num_heads='8'"):
        serialization.from_json(Sizes, serialization.to_json(Sizes()).replace('"num_heads": 8', '"num_heads": "8"'))
    assert tyro.cli(Sizes, args=["--num-heads", "4"]).num_heads == 4
    with pytest.raises(SystemExit):
        tyro.cli(Sizes, args=["--help"])
    shown = capsys.readouterr().out
    assert "--num-heads INT" in shown and "Attention heads a layer." in shown and "Range" not in shown
