"""Laws of the loss by model size, data and compute: Kaplan et al. 2020, Hoffmann et al. 2022.

N is the number of parameters, D of training tokens, C of floating-point operations of training, L the loss in nats.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from t5x_lite.errors import InputError

Vector = Float[np.ndarray, "R"]
_MOST_LOG = 700.0
"""Of the logarithm of a number that floats have."""


@dataclass(frozen=True)
class Measurements:
    """What models of some sizes reached: arrays [R] of positive numbers, an entry for each evaluation of each run."""

    parameters: Vector
    """N of each."""
    tokens: Vector
    """D, trained on so far."""
    flops: Vector
    """C, spent so far."""
    loss: Vector
    """L in nats."""
    run: tuple[str, ...]
    """The run's name: entries of one run are its learning curve."""

    def __post_init__(self) -> None:
        arrays = {
            name: np.asarray(getattr(self, name), np.float64) for name in ("parameters", "tokens", "flops", "loss")
        }
        for name, array in arrays.items():
            if array.shape != (len(self.run),):
                raise InputError(f"{name} has {array.size} values for {len(self.run)} measurements; give one for each")
            if bad := [value for value in array.tolist() if not (0 < value < math.inf)]:
                raise InputError(f"{name}={bad[0]} is not a positive number; leave that measurement out")
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.run)

    def take(self, chosen: np.ndarray) -> "Measurements":
        """The entries at these indices, or where a mask is true."""
        indices = np.arange(len(self))[chosen]
        arrays = (array[indices] for array in (self.parameters, self.tokens, self.flops, self.loss))
        return Measurements(*arrays, run=tuple(self.run[index] for index in indices))

    def ends(self) -> "Measurements":
        """The last entry of each run."""
        last: dict[str, int] = {}
        for index, run in enumerate(self.run):
            if run not in last or self.tokens[index] >= self.tokens[last[run]]:
                last[run] = index
        return self.take(np.array(sorted(last.values()), int))


class Optimum(NamedTuple):
    """The model that a law gives the lowest loss for some compute."""

    parameters: float
    tokens: float
    loss: float


@dataclass(frozen=True)
class ComputeLaw:
    """C = factor N^exponent D: what training costs. That of a decoder without its embeddings is about 6 N D."""

    factor: float = 6.0
    exponent: float = 1.0

    @staticmethod
    def fit(measurements: Measurements) -> "ComputeLaw":
        """Least squares on logarithms; the exponent is 1 where all models have one size.

        Raises:
          InputError: larger models cost less a token.
        """
        per_token = np.log(measurements.flops / measurements.tokens)
        size = np.log(measurements.parameters)
        if np.ptp(size) < 1e-6:
            return ComputeLaw(float(np.exp((per_token - size).mean())))
        exponent, log_factor = np.polyfit(size, per_token, 1)
        if exponent <= 0:
            raise InputError(
                f"compute a token falls with the parameters, as N^{exponent:.2f}; check the columns tokens and flops"
            )
        return ComputeLaw(float(np.exp(log_factor)), float(exponent))

    def tokens(self, parameters: float, flops: float) -> float:
        """How many tokens a model of this size sees for this compute."""
        return flops / (self.factor * parameters**self.exponent)


@dataclass(frozen=True)
class Law(ABC):
    """A loss as a function of N, D and C, by a few constants.

    A fit works on a vector `theta` in which the constants are free and of like size: see `from_theta`.
    """

    bounds: ClassVar[tuple[tuple[float, float], ...]]
    """Of each number in `theta`."""
    formula: ClassVar[str]

    @abstractmethod
    def loss(self, parameters: Vector, tokens: Vector, flops: Vector) -> Vector:
        """L in nats."""

    @staticmethod
    @abstractmethod
    def log_loss(theta: Vector, logs: Float[np.ndarray, "3 R"]) -> tuple[Vector, Float[np.ndarray, "R P"]]:
        """(log L, its derivatives by `theta`) at the logarithms of N, D and C, from which their means were taken."""

    @staticmethod
    @abstractmethod
    def starts(logs: Float[np.ndarray, "3 R"], log_loss: Vector) -> list[Vector]:
        """Where fits begin: values of `theta`, the best guesses among them."""

    @classmethod
    @abstractmethod
    def from_theta(cls, theta: Vector, means: Float[np.ndarray, "3"]) -> "Law":
        """The law whose numbers were fitted with these means taken from the logarithms of N, D and C."""

    @property
    def constants(self) -> dict[str, float]:
        """By name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def predict(self, measurements: Measurements) -> Vector:
        """The loss at each."""
        return self.loss(measurements.parameters, measurements.tokens, measurements.flops)


Variable = Literal["parameters", "tokens", "flops"]
VARIABLES: tuple[Variable, ...] = ("parameters", "tokens", "flops")


@dataclass(frozen=True)
class PowerLaw(Law):
    """L(X) = (scale / X)^exponent (Kaplan et al. 2020, equations 1.1 to 1.3)."""

    scale: float
    """N_c, D_c or C_c: where the loss would be one nat."""
    exponent: float

    variable: ClassVar[Variable]
    symbols: ClassVar[tuple[str, str]]
    """What the papers call the two constants."""
    bounds = ((-math.inf, math.inf), (-math.inf, math.inf))

    @property
    def constants(self) -> dict[str, float]:
        return dict(zip(self.symbols, (self.scale, self.exponent), strict=True))

    def loss(self, parameters: Vector, tokens: Vector, flops: Vector) -> Vector:
        x = {"parameters": parameters, "tokens": tokens, "flops": flops}[self.variable]
        return np.exp(self.exponent * (np.log(self.scale) - np.log(x)))

    @classmethod
    def log_loss(cls, theta: Vector, logs: Float[np.ndarray, "3 R"]) -> tuple[Vector, Float[np.ndarray, "R 2"]]:
        x = logs[VARIABLES.index(cls.variable)]
        return theta[0] - theta[1] * x, np.stack([np.ones_like(x), -x], axis=1)

    @classmethod
    def starts(cls, logs: Float[np.ndarray, "3 R"], log_loss: Vector) -> list[Vector]:
        x = logs[VARIABLES.index(cls.variable)]
        slope, level = np.polyfit(x, log_loss, 1)
        return [np.array([level, -slope])]

    @classmethod
    def from_theta(cls, theta: Vector, means: Float[np.ndarray, "3"]) -> "PowerLaw":
        mean = means[VARIABLES.index(cls.variable)]
        if abs(theta[0]) + abs(mean * theta[1]) >= _MOST_LOG * abs(theta[1]):
            problem = f"the loss hardly depends on {cls.variable}"
            raise InputError(f"{cls.formula} cannot be fitted: {problem}; train others too")
        return cls(math.exp(mean + theta[0] / theta[1]), float(theta[1]))


@dataclass(frozen=True)
class SizeLaw(PowerLaw):
    """Of models that see enough data."""

    variable = "parameters"
    symbols = ("N_c", "alpha_N")
    formula = "L(N) = (N_c / N)^alpha_N"


@dataclass(frozen=True)
class DataLaw(PowerLaw):
    """Of models that are large enough."""

    variable = "tokens"
    symbols = ("D_c", "alpha_D")
    formula = "L(D) = (D_c / D)^alpha_D"


@dataclass(frozen=True)
class FrontierLaw(PowerLaw):
    """Of the lowest loss that each compute reaches."""

    variable = "flops"
    symbols = ("C_c", "alpha_C")
    formula = "L(C) = (C_c / C)^alpha_C"


class Terms(NamedTuple):
    """A / N^alpha and B / D^beta: the loss grows with their sum, which is all that the best N and D depend on."""

    log_A: float
    alpha: float
    log_B: float
    beta: float


class JointLaw(Law):
    """A law of both N and D, which says how to spend compute."""

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """What N and D trade off."""

    def optimum(self, flops: float, cost: ComputeLaw | None = None) -> Optimum:
        """The size and the tokens of the lowest loss for this compute (Hoffmann et al. 2022, equation 4).

        Args:
          flops: C, of the whole training.
          cost: what training costs; None: 6 N D.
        """
        cost = cost or ComputeLaw()
        log_A, alpha, log_B, beta = self.terms
        # Where a larger model gains what the tokens that it costs lose: alpha A N^-alpha = exponent beta B D^-beta.
        log_ratio = math.log(alpha) + log_A - math.log(cost.exponent * beta) - log_B
        log_product = math.log(flops) - math.log(cost.factor)
        log_size = (log_ratio + beta * log_product) / (alpha + cost.exponent * beta)
        logs = log_size, log_product - cost.exponent * log_size
        # Of resampled runs a law may have exponents near 0, and its optimum be no number that floats have.
        size, tokens = (math.exp(min(max(log, -_MOST_LOG), _MOST_LOG)) for log in logs)
        with np.errstate(all="ignore"):
            loss = self.loss(*(np.array([value]) for value in (size, tokens, flops)))
        return Optimum(size, tokens, float(loss[0]))

    def exponents(self, cost: ComputeLaw | None = None) -> tuple[float, float]:
        """(a, b) of the best N, which grows as C^a, and D, which grows as C^b."""
        cost = cost or ComputeLaw()
        _, alpha, _, beta = self.terms
        a = beta / (alpha + cost.exponent * beta)
        return a, 1 - cost.exponent * a


@dataclass(frozen=True)
class KaplanLaw(JointLaw):
    """L(N, D) = ((N_c / N)^(alpha_N / alpha_D) + D_c / D)^alpha_D (Kaplan et al. 2020, equation 1.5)."""

    N_c: float
    D_c: float
    alpha_N: float
    alpha_D: float

    # theta: log A, log B of the two terms at the means, alpha_N / alpha_D, log alpha_D.
    bounds = ((-50, 50), (-50, 50), (1e-3, 50), (-12, 4))
    formula = "L(N, D) = ((N_c / N)^(alpha_N / alpha_D) + D_c / D)^alpha_D"

    @property
    def terms(self) -> Terms:
        ratio = self.alpha_N / self.alpha_D
        return Terms(ratio * math.log(self.N_c), ratio, math.log(self.D_c), 1.0)

    def loss(self, parameters: Vector, tokens: Vector, flops: Vector) -> Vector:
        ratio = self.alpha_N / self.alpha_D
        size = ratio * (np.log(self.N_c) - np.log(parameters))
        return np.exp(self.alpha_D * np.logaddexp(size, np.log(self.D_c) - np.log(tokens)))

    @staticmethod
    def log_loss(theta: Vector, logs: Float[np.ndarray, "3 R"]) -> tuple[Vector, Float[np.ndarray, "R 4"]]:
        size, data = theta[0] - theta[2] * logs[0], theta[1] - logs[1]
        total, exponent = np.logaddexp(size, data), np.exp(theta[3])
        share = np.exp(size - total)
        by = [share, 1 - share, -share * logs[0], total]
        return exponent * total, exponent * np.stack(by, axis=1)

    @staticmethod
    def starts(logs: Float[np.ndarray, "3 R"], log_loss: Vector) -> list[Vector]:
        starts = []
        for alpha_data in np.geomspace(0.02, 1.0, 8):
            inner = np.exp((log_loss - log_loss.mean()) / alpha_data)
            for ratio in np.geomspace(0.2, 5.0, 8):
                columns = np.stack([np.exp(-ratio * logs[0]), np.exp(-logs[1])], axis=1)
                A, B = _non_negative_least_squares(columns / inner[:, None], np.ones_like(inner))
                shift = log_loss.mean() / alpha_data
                starts.append(np.array([np.log(A) + shift, np.log(B) + shift, ratio, np.log(alpha_data)]))
        return starts

    @classmethod
    def from_theta(cls, theta: Vector, means: Float[np.ndarray, "3"]) -> "KaplanLaw":
        alpha_D = math.exp(theta[3])
        log_size = theta[0] / theta[2] + means[0]
        if abs(log_size) >= _MOST_LOG:
            raise InputError(f"{cls.formula} cannot be fitted: the loss hardly depends on N; train other sizes too")
        return cls(math.exp(log_size), math.exp(theta[1] + means[1]), theta[2] * alpha_D, alpha_D)


@dataclass(frozen=True)
class ChinchillaLaw(JointLaw):
    """L(N, D) = E + A / N^alpha + B / D^beta (Hoffmann et al. 2022, equation 2)."""

    E: float
    """The entropy of the text, which no model gets below."""
    A: float
    B: float
    alpha: float
    beta: float

    # theta: log E, log of the two terms at the means, alpha, beta.
    bounds = ((-20, 10), (-30, 30), (-30, 30), (1e-4, 5), (1e-4, 5))
    formula = "L(N, D) = E + A / N^alpha + B / D^beta"

    @property
    def terms(self) -> Terms:
        return Terms(math.log(self.A), self.alpha, math.log(self.B), self.beta)

    def loss(self, parameters: Vector, tokens: Vector, flops: Vector) -> Vector:
        return self.E + self.A / parameters**self.alpha + self.B / tokens**self.beta

    @staticmethod
    def log_loss(theta: Vector, logs: Float[np.ndarray, "3 R"]) -> tuple[Vector, Float[np.ndarray, "R 5"]]:
        parts = np.stack(
            [np.full(logs.shape[1], theta[0]), theta[1] - theta[3] * logs[0], theta[2] - theta[4] * logs[1]]
        )
        largest = parts.max(axis=0)
        shares = np.exp(parts - largest)
        total = shares.sum(axis=0)
        shares /= total
        return largest + np.log(total), np.concatenate([shares, -shares[1:] * logs[:2]]).T

    @staticmethod
    def starts(logs: Float[np.ndarray, "3 R"], log_loss: Vector) -> list[Vector]:
        loss, starts = np.exp(log_loss), []
        # The other three numbers are linear once the exponents are chosen.
        for alpha in np.geomspace(0.05, 1.6, 10):
            for beta in np.geomspace(0.05, 1.6, 10):
                columns = np.stack([np.ones_like(loss), np.exp(-alpha * logs[0]), np.exp(-beta * logs[1])], axis=1)
                linear = _non_negative_least_squares(columns / loss[:, None], np.ones_like(loss))
                starts.append(np.array([*np.log(linear), alpha, beta]))
        return starts

    @classmethod
    def from_theta(cls, theta: Vector, means: Float[np.ndarray, "3"]) -> "ChinchillaLaw":
        A, B = (math.exp(theta[n] + theta[n + 2] * means[n - 1]) for n in (1, 2))  # within the bounds no overflow
        return cls(math.exp(theta[0]), A, B, float(theta[3]), float(theta[4]))


def _non_negative_least_squares(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Those of the solution, none of them 0, whose logarithm a fit begins with."""
    from scipy.optimize import nnls

    return np.maximum(nnls(columns, values)[0], 1e-6)
