"""Ranges of fields as annotations, checked for a whole dataclass in one place.

>>> @dataclasses.dataclass(frozen=True)
... class Layer(Validated):
...     num_heads: Positive = 8
...     dropout_rate: Rate = 0.1
...     head_dim: Positive | None = None
>>> Layer(num_heads=0)
Traceback (most recent call last):
    ...
t5x_lite.errors.InputError: num_heads=0 is too small; choose 1 or more
"""

import dataclasses
import functools
import math
import operator
import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from t5x_lite.errors import InputError

MOST_INT = 2**31
"""Steps, ids and sizes are below it: arrays count them in 32 bits."""
MOST_LAYERS = 1000
"""Of layers that are not one scan."""


@dataclass(frozen=True)
class Range:
    """The numbers of a field: `ge` and `gt` bound them from below, `le` and `lt` from above.

    >>> Range(ge=0, lt=1, remedy="choose e.g. 0.1").problem(1.5)
    'is not in [0, 1); choose e.g. 0.1'
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    remedy: str = ""
    """What to choose instead; by default the bounds say it."""

    def problem(self, value: Any) -> str | None:
        """What is wrong with `value` and what to choose; None where it lies in the range.

        Only finite numbers do, and without a bound from above only those below `MOST_INT`.
        """
        if not isinstance(value, int | float):
            return "is not a number; give one"
        if isinstance(value, float) and not math.isfinite(value):
            return f"is not finite; {self.remedy or 'choose a finite number'}"
        if self.le is None and self.lt is None and abs(value) >= MOST_INT:
            return f"is too large; {self.remedy or f'choose one below {MOST_INT:,}'}"
        bounds = ((operator.ge, self.ge), (operator.gt, self.gt), (operator.le, self.le), (operator.lt, self.lt))
        if all(bound is None or compare(value, bound) for compare, bound in bounds):
            return None
        least = f"[{self.ge}" if self.ge is not None else f"({'-inf' if self.gt is None else self.gt}"
        most = f"{self.le}]" if self.le is not None else f"{'inf' if self.lt is None else self.lt})"
        if self.le is None and self.lt is None:
            if self.ge is not None:
                return f"is too small; {self.remedy or f'choose {self.ge} or more'}"
            return f"is not above {self.gt}; {self.remedy or 'choose a larger number'}"
        return f"is not in {least}, {most}; {self.remedy or 'choose a number in that range'}"


@dataclass(frozen=True)
class OneOf:
    """The values of a field that are known only at run time; for others there is `Literal`."""

    values: tuple[Any, ...]

    def problem(self, value: Any) -> str | None:
        """What is wrong with `value` and what to choose; None where it is one of the values."""
        if value in self.values:
            return None
        *others, last = map(str, self.values)
        return f"is unknown; choose {', '.join(others)}{' or ' if others else ''}{last}"


Positive = Annotated[int, Range(ge=1)]
Layers = Annotated[int, Range(ge=1, le=MOST_LAYERS)]
"""Layers that are not one scan: each has arrays of its own."""
NonNegative = Annotated[int, Range(ge=0)]
Seed = Annotated[int, Range(ge=0, lt=2**63, remedy="choose one from 0 to 2**63 - 1")]
PositiveFloat = Annotated[float, Range(gt=0)]
Rate = Annotated[float, Range(ge=0, lt=1, remedy="choose e.g. 0.1, or 0 to turn it off")]
"""A share of what is dropped, smoothed or hidden: in [0, 1)."""
Share = Annotated[float, Range(ge=0, le=1, remedy="choose e.g. 0.1")]
"""A share of a whole: in [0, 1]."""
Density = Annotated[float, Range(gt=0, lt=1, remedy="choose e.g. 0.15")]
"""A share that leaves some on either side: in (0, 1)."""
NonNegativeFloat = Annotated[float, Range(ge=0, lt=float("inf"), remedy="choose 0, or a number above it")]
NormEpsilon = Annotated[float, Range(ge=0, lt=1, remedy="choose e.g. 1e-6")]


class Validated:
    """A dataclass whose fields are checked by their annotations when a value is made."""

    def __post_init__(self) -> None:
        check_fields(self)


def check_fields(config: Any, prefix: str = "") -> None:
    """Raises `InputError` for the first field of a dataclass outside its `Range`, `OneOf` or `Literal`.

    Numbers without a range have that of `Range()`.

    A field that may be None, as in `Positive | None`, is checked where it is not. `prefix` comes before the names in
    the message: `evaluation.` for a group of an experiment. Types are not checked here.
    """
    for name, rules in _rules(type(config)):
        value = getattr(config, name)
        problems = [rule.problem(value) for rule in rules] if value is not None else []
        if problems and all(problems):
            raise InputError(f"{prefix}{name}={value!r} {problems[0]}")


@functools.cache
def _rules(cls: type) -> list[tuple[str, list[Range | OneOf]]]:
    hints = get_type_hints(cls, include_extras=True)
    rules = [(field.name, _rules_of(hints[field.name])) for field in dataclasses.fields(cls)]
    return [(name, found) for name, found in rules if found]


def _rules_of(annotation: Any) -> list[Range | OneOf]:
    """The rules of an annotation, one of which a value must satisfy; none where any value of the type is valid."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        options = [_rules_of(option) for option in arguments if option is not type(None)]
        return [rule for rules in options for rule in rules] if all(options) else []
    if origin is Literal:
        return [OneOf(arguments)]
    if annotation in (int, float):
        return [Range()]
    return [rule for rule in arguments[1:] if isinstance(rule, Range | OneOf)] if origin is Annotated else []
