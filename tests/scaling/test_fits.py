"""Laws are found again from losses that follow them, with intervals that hold them."""

import json
import math

import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.scaling import (
    ChinchillaLaw,
    ComputeLaw,
    DataLaw,
    FrontierLaw,
    KaplanLaw,
    Measurements,
    SizeLaw,
    fit_law,
    fit_study,
)

PUBLISHED = {
    # Besiroglu et al. 2024; Kaplan et al. 2020, appendix A.
    "chinchilla": ChinchillaLaw(E=1.8172, A=477.8, B=2143.4, alpha=0.3473, beta=0.3672),
    "kaplan": KaplanLaw(N_c=6.4e13, D_c=1.8e13, alpha_N=0.076, alpha_D=0.103),
    "size": SizeLaw(8.8e13, 0.076),
    "data": DataLaw(5.4e13, 0.095),
    "frontier": FrontierLaw(3.1e8 * 8.64e19, 0.050),
}


def grid(law, *, noise=0.0, seed=0, unit=1.0, count=7):
    """Models of 50 M to 16 B parameters on 1 to 300 G tokens, in units of so many parameters and tokens."""
    sizes, tokens = np.meshgrid(np.geomspace(5e7, 1.6e10, count), np.geomspace(1e9, 3e11, count))
    sizes, tokens = sizes.ravel() / unit, tokens.ravel() / unit
    flops = 6 * sizes * tokens
    loss = law.loss(sizes, tokens, flops) * np.exp(noise * np.random.default_rng(seed).normal(size=sizes.size))
    return Measurements(sizes, tokens, flops, loss, tuple(map(str, range(sizes.size))))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_law_is_found_again(name):
    law = PUBLISHED[name]
    fit = fit_law(type(law), grid(law))
    for constant, value in law.constants.items():
        assert fit.law.constants[constant] == pytest.approx(value, rel=1e-5), constant
    assert abs(fit.residuals).max() < 1e-7
    assert fit.intervals.keys() == law.constants.keys() and math.isnan(fit.intervals[constant][0])


def test_another_unit_gives_the_same_law():
    law = PUBLISHED["chinchilla"]
    million = ChinchillaLaw(law.E, law.A / 1e6**law.alpha, law.B / 1e6**law.beta, law.alpha, law.beta)
    fit = fit_law(ChinchillaLaw, grid(million, unit=1e6))
    for constant, value in million.constants.items():
        assert fit.law.constants[constant] == pytest.approx(value, rel=1e-5), constant


def test_it_is_the_least_huber_loss():
    """No law nearby has a lower one; with a wide delta it is least squares on logarithms, which SciPy finds too."""
    from scipy.optimize import least_squares

    measurements = grid(PUBLISHED["chinchilla"], noise=0.02, seed=3)

    def huber(law, delta):
        residuals = np.abs(np.log(measurements.loss) - np.log(law.predict(measurements)))
        return np.where(residuals < delta, residuals**2 / 2, delta * (residuals - delta / 2)).sum()

    best = fit_law(ChinchillaLaw, measurements).law
    random = np.random.default_rng(0)
    for _ in range(200):
        other = [value * math.exp(1e-3 * random.normal()) for value in best.constants.values()]
        assert huber(ChinchillaLaw(*other), 1e-3) > huber(best, 1e-3)

    def residuals(theta):
        law = ChinchillaLaw(*np.exp(theta))
        return np.log(measurements.loss) - np.log(law.predict(measurements))

    start = np.log(list(PUBLISHED["chinchilla"].constants.values()))
    expected = np.exp(least_squares(residuals, start, xtol=1e-14, ftol=1e-14, gtol=1e-14).x)
    np.testing.assert_allclose(
        list(fit_law(ChinchillaLaw, measurements, delta=9.0).law.constants.values()), expected, rtol=1e-4
    )


def test_outliers_move_it_little():
    law = PUBLISHED["chinchilla"]
    measurements = grid(law)
    loss = measurements.loss.copy()
    loss[[3, 17, 40]] *= 1.5
    spoilt = Measurements(measurements.parameters, measurements.tokens, measurements.flops, loss, measurements.run)
    fit = fit_law(ChinchillaLaw, spoilt)
    for constant, value in law.constants.items():
        assert fit.law.constants[constant] == pytest.approx(value, rel=0.02), constant


def test_intervals_of_one_sample():
    law = PUBLISHED["chinchilla"]
    narrow, wide = (
        fit_law(ChinchillaLaw, grid(law, noise=noise, seed=1, count=6), draws=40) for noise in (0.001, 0.01)
    )
    for constant in law.constants:
        (low, high), (lowest, highest) = narrow.intervals[constant], wide.intervals[constant]
        assert low < narrow.law.constants[constant] < high
        assert highest - lowest > 3 * (high - low)
    again = fit_law(ChinchillaLaw, grid(law, noise=0.001, seed=1, count=6), draws=40)
    assert again.intervals == narrow.intervals


@pytest.mark.slow
def test_intervals_hold_the_truth():
    """Those of 95 % in 90 of 100 samples or more."""
    law, held = PUBLISHED["chinchilla"], dict.fromkeys(PUBLISHED["chinchilla"].constants, 0)
    for seed in range(100):
        fit = fit_law(ChinchillaLaw, grid(law, noise=0.01, seed=seed), draws=40)
        for constant, (low, high) in fit.intervals.items():
            held[constant] += low <= law.constants[constant] <= high
    assert min(held.values()) >= 90, held


def test_the_optimum_is_the_lowest_loss_of_its_compute():
    for name in ("chinchilla", "kaplan"):
        law = PUBLISHED[name]
        for cost in (ComputeLaw(), ComputeLaw(40.0, 0.9)):
            sizes = np.geomspace(1e6, 1e13, 20_001)
            tokens = cost.tokens(sizes, 1e22)
            losses = law.loss(sizes, tokens, sizes)
            optimum = law.optimum(1e22, cost)
            assert optimum.parameters == pytest.approx(sizes[losses.argmin()], rel=2e-3)
            assert optimum.loss == pytest.approx(losses.min(), rel=1e-6)
            later = law.optimum(1e24, cost)
            a, b = law.exponents(cost)
            assert math.log(later.parameters / optimum.parameters) == pytest.approx(a * math.log(100))
            assert math.log(later.tokens / optimum.tokens) == pytest.approx(b * math.log(100))


def test_compute_as_counted():
    measurements = grid(PUBLISHED["chinchilla"])
    assert ComputeLaw.fit(measurements).factor == pytest.approx(6)
    assert ComputeLaw.fit(measurements).exponent == pytest.approx(1)
    flops = 35 * measurements.parameters**0.92 * measurements.tokens
    cost = ComputeLaw.fit(Measurements(measurements.parameters, measurements.tokens, flops, flops, measurements.run))
    assert (cost.factor, cost.exponent) == (pytest.approx(35), pytest.approx(0.92))


LOSSES = {
    "all equal": lambda sizes, tokens: np.full(sizes.size, 3.0),
    "of nothing": lambda sizes, tokens: np.random.default_rng(0).uniform(1, 9, sizes.size),
    "of the size alone": lambda sizes, tokens: 1 + 1e3 * sizes**-0.3,
    "growing": lambda sizes, tokens: 1e-3 * (sizes * tokens) ** 0.1,
}


@pytest.mark.parametrize("case", LOSSES)
@pytest.mark.slow
def test_losses_without_a_law_end_in_figures_or_a_sentence(case):
    """Of whatever is fitted, the optima and all that is written are numbers."""
    sizes, tokens = (x.ravel() for x in np.meshgrid(np.geomspace(5e7, 1.6e10, 4), np.geomspace(1e9, 3e11, 4)))
    losses = LOSSES[case](sizes, tokens)
    measured = Measurements(sizes, tokens, 6 * sizes * tokens, losses, tuple(map(str, range(sizes.size))))
    study = fit_study(measured, draws=5)
    json.dumps(study.to_json(), allow_nan=False)
    for flops in (1e-3, 1e20, 9e29):
        for optimum, interval in study.optima(flops).values():
            assert not any(map(math.isnan, optimum)) and len(interval("loss")) == 2
    assert study.laws or study.problems


def test_compute_that_falls_with_the_size_is_refused():
    sizes = np.geomspace(1e6, 1e9, 5)
    measured = Measurements(sizes, sizes, 1e12 / sizes, sizes, tuple("abcde"))
    with pytest.raises(InputError, match=r"compute a token falls with the parameters, as N\^-2.00; check the columns"):
        ComputeLaw.fit(measured)


def test_too_little_is_refused():
    whole = grid(PUBLISHED["chinchilla"], count=4)
    with pytest.raises(InputError, match=r"it has 5 constants, and there are 4 measurements; give more runs"):
        fit_law(ChinchillaLaw, whole.take(np.arange(4)))
    of_two_sizes = whole.take(np.unique(whole.parameters)[1] >= whole.parameters)
    with pytest.raises(InputError, match="needs runs of three numbers of parameters or more, and there are 2"):
        fit_law(ChinchillaLaw, of_two_sizes)
    with pytest.raises(InputError, match=r"loss=nan is not a positive number"):
        Measurements(*np.ones((3, 2)), loss=np.array([1.0, math.nan]), run=("a", "b"))
    with pytest.raises(InputError, match="tokens has 2 values for 1 measurements"):
        Measurements(np.ones(1), np.ones(2), np.ones(1), np.ones(1), run=("a",))
