"""The absence of an objective."""

from dataclasses import dataclass
from typing import Any, NoReturn

from flax import linen as nn
from jaxtyping import Array, Float, Int, Key

from t5x_lite.data.formats import RowFormat
from t5x_lite.errors import InputError
from t5x_lite.objectives.base import Features, Metrics, Objective


@dataclass(frozen=True)
class NoObjective(Objective):
    """Of a model that came from elsewhere without the heads of any objective: it can be used, not trained as it is.

    Everything that an objective is asked raises `InputError`.
    """

    @property
    def row_format(self) -> RowFormat:
        _refuse()

    def corrupt(self, key: Key[Array, ""], raw: Int[Array, "R"]) -> Features:
        _refuse()

    def loss(
        self,
        module: nn.Module,
        params: Any,
        features: Features,
        key: Key[Array, ""] | None,
        *,
        whole: Features | None = None,
        frozen: Any = None,
    ) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
        _refuse()

    def predict(self, module: nn.Module, params: Any, features: Features) -> Int[Array, "B T"]:
        _refuse()


def _refuse() -> NoReturn:
    raise InputError(
        "this model came without the heads of an objective, so there is nothing to ask it; train it with a config that "
        "has an objective and start=FromModel(its folder)"
    )
