"""RandAugment (Cubuk et al. 2020): a few operations drawn at random, all of one magnitude."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from t5x_lite.errors import InputError
from t5x_lite.images import colors
from t5x_lite.images.geometry import GREY, Box, Planes, Warp, inside, warp
from t5x_lite.validation import NonNegativeFloat, Positive, Range, Share, Validated

Operation = Literal[
    "identity",
    "autocontrast",
    "equalize",
    "invert",
    "rotate",
    "posterize",
    "solarize",
    "solarize_add",
    "color",
    "contrast",
    "brightness",
    "sharpness",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "cutout",
]

GEOMETRY: tuple[Operation, ...] = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
_SHARED: tuple[Operation, ...] = ("autocontrast", "equalize", "rotate", "posterize", "solarize", "color", "contrast")
_SHARED += ("brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y")

PAPER_OPERATIONS: tuple[Operation, ...] = ("identity", *_SHARED)
"""The 14 of the paper (Cubuk et al. 2020, section 3)."""
CODE_OPERATIONS: tuple[Operation, ...] = (*_SHARED, "invert", "cutout", "solarize_add")
"""The 16 of its authors' code, which big_vision's configs have too."""
TIMM_OPERATIONS: tuple[Operation, ...] = (*_SHARED, "invert", "solarize_add")
"""The 15 of timm, which trained DeiT (Touvron et al. 2021, table 9)."""

_MOST_DEGREES = 30.0
_MOST_SHEAR = 0.3
_MOST_SHIFT = 100 / 224
_CUTOUT = 40 / 224
"""Of the picture's sides: 100 and 40 pixels of 224 in the authors' code; timm shifts by 0.45 at most."""


@dataclass(frozen=True)
class RandAugment(Validated):
    """`num_layers` operations in turn, each drawn from `operations`.

    At magnitude 10 pictures turn by 30 degrees, are sheared by 0.3 and shifted by 100 / 224 of their sides, to either
    side; what is left empty is grey. Magnitudes beyond 10 go on in proportion.

    >>> RandAugment(num_layers=2, magnitude=9, operations=TIMM_OPERATIONS, increasing=True, magnitude_std=0.5,
    ...     probability=0.5).num_layers  # timm's rand-m9-mstd0.5-inc1
    2
    """

    num_layers: Positive = 2
    magnitude: Annotated[float, Range(ge=0, le=30, remedy="choose 0 to 30, e.g. 10")] = 10.0
    operations: tuple[Operation, ...] = CODE_OPERATIONS
    increasing: bool = False
    """Whether posterize, solarize and the four of color change more at larger magnitudes, the four to either side, as
    in timm. In the authors' code posterize and solarize change less, and the factors of color, contrast, brightness and
    sharpness go from 0.1 to 1.9."""
    magnitude_std: NonNegativeFloat = 0.0
    """The standard deviation of the magnitude of each operation, which stays within 0 and 10 then (timm)."""
    probability: Share = 1.0
    """That of each layer to do anything."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.operations or (unknown := set(self.operations) - set(Operation.__args__)):
            given = f"has unknown {', '.join(sorted(unknown))}" if self.operations else "is empty"
            raise InputError(
                f"rand_augment.operations {given}; choose PAPER_OPERATIONS, CODE_OPERATIONS, TIMM_OPERATIONS or some "
                f"of {', '.join(Operation.__args__)}"
            )

    def __call__(self, key: Key[Array, ""], planes: Planes) -> Planes:
        """The augmented picture, whole numbers from 0 to 255, as the given one [C H W] is."""

        def layer(planes: Planes, index: Int[Array, ""]) -> tuple[Planes, None]:
            operation_key, layer_key, magnitude_key, own_key = jax.random.split(jax.random.fold_in(key, index), 4)
            level = jnp.float32(self.magnitude) / 10.0
            if self.magnitude_std:
                level = jnp.clip(level + self.magnitude_std / 10.0 * jax.random.normal(magnitude_key), 0.0, 1.0)
            number = jax.random.randint(operation_key, (), 0, len(self.operations))
            number = jnp.where(jax.random.uniform(layer_key) < self.probability, number, -1)
            return self.apply(own_key, planes, number, level), None

        return jax.lax.scan(layer, planes, jnp.arange(self.num_layers))[0]

    def apply(self, key: Key[Array, ""], planes: Planes, number: Array, level: Float[Array, ""]) -> Planes:
        """The operation of this number among `operations`, none for -1, at `level`, a tenth of the magnitude.

        Of many pictures at once all operations are computed, and one is selected: warps are one warp therefore, and
        the others are a few passes over the pixels.
        """
        sign_key, place_key = jax.random.split(key)
        sign = jnp.where(jax.random.bernoulli(sign_key), 1.0, -1.0)
        is_drawn = {name: number == index for index, name in enumerate(self.operations)}
        result = planes
        if any(name in GEOMETRY for name in self.operations):
            result = warp(planes, self._warp(is_drawn, sign * level, planes.shape), math.radians(self._most_degrees))
        for name, operation in self._color_operations(place_key, planes, level, sign).items():
            if name in is_drawn:
                result = jnp.where(is_drawn[name], operation(planes), result)
        return result

    @property
    def _most_degrees(self) -> float:
        return _MOST_DEGREES * max(self.magnitude / 10.0, 1.0 if self.magnitude_std else 0.0)

    def _warp(self, is_drawn: dict[str, Array], level: Float[Array, ""], shape: tuple[int, ...]) -> Warp:
        most = {"rotate": math.radians(_MOST_DEGREES), "shear_x": _MOST_SHEAR, "shear_y": _MOST_SHEAR}
        most |= {"translate_x": _MOST_SHIFT * shape[2], "translate_y": _MOST_SHIFT * shape[1]}
        values = [jnp.where(is_drawn.get(name, False), level * most[name], 0.0) for name in GEOMETRY]
        return Warp(*values[:3], jnp.trunc(values[3]), jnp.trunc(values[4]))

    def _color_operations(
        self, key: Key[Array, ""], planes: Planes, level: Float[Array, ""], sign: Float[Array, ""]
    ) -> dict[str, Callable[[Planes], Planes]]:
        factor = jnp.maximum(1.0 + 0.9 * sign * level, 0.1) if self.increasing else 1.8 * level + 0.1
        bits, threshold = jnp.floor(4.0 * level + 1e-4), jnp.floor(256.0 * level + 1e-4)
        if self.increasing:
            bits, threshold = 4.0 - bits, 256.0 - threshold
        _, height, width = planes.shape
        # Twice the side, and cut off at the border.
        y, x = jax.random.uniform(key, (2,))
        box = Box(y - _CUTOUT * level, x - _CUTOUT * level, 2 * _CUTOUT * level, 2 * _CUTOUT * level)
        with_options = functools.partial
        return {
            "autocontrast": colors.autocontrast,
            "equalize": colors.equalize,
            "invert": colors.invert,
            "posterize": with_options(colors.posterize, bits=jnp.clip(bits, 0.0, 8.0)),
            "solarize": with_options(colors.solarize, threshold=threshold),
            "solarize_add": with_options(colors.solarize_add, addition=jnp.floor(110.0 * level + 1e-4)),
            "color": with_options(colors.color, factor=factor),
            "contrast": with_options(colors.contrast, factor=factor),
            "brightness": with_options(colors.brightness, factor=factor),
            "sharpness": with_options(colors.sharpness, factor=factor),
            "cutout": lambda planes: jnp.where(inside(box, height, width)[None], GREY, planes),
        }
