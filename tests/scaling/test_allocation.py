"""Approaches 1 and 2 find the exponents of losses that follow a law."""

import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.scaling import ChinchillaLaw, Measurements, fit_envelope, fit_profiles

LAW = ChinchillaLaw(E=1.7, A=400.0, B=2000.0, alpha=0.34, beta=0.37)
SIZES = np.geomspace(1e7, 1e11, 25)


def runs(sizes, ends, points=1):
    """A run of each size to each end of its compute, with losses on the way."""
    entries = [
        (size, flops * share / (6 * size), flops * share, f"{size:.3g} {flops:.3g}")
        for size in sizes
        for flops in ends
        for share in np.geomspace(1, 0.01, points)
    ]
    size, tokens, flops, names = zip(*entries, strict=True)
    arrays = [np.array(array) for array in (size, tokens, flops)]
    return Measurements(*arrays, LAW.loss(*arrays), names)


def test_profiles_of_equal_compute():
    budgets = np.geomspace(1e19, 1e22, 5)
    allocation = fit_profiles(runs(SIZES, budgets), draws=10)
    a, b = LAW.exponents()
    # A parabola is not the law's own curve: the paper's approaches differ by as much.
    assert allocation.a == pytest.approx(a, abs=0.02) and allocation.b == pytest.approx(b, abs=0.02)
    np.testing.assert_allclose([profile.flops for profile in allocation.profiles], budgets, rtol=1e-6)
    low, high = allocation.exponent_intervals["a"]
    assert low <= allocation.a <= high
    narrow = fit_profiles(
        runs(np.geomspace(0.5, 2, 7) * LAW.optimum(1e20).parameters, [0.7e20, 1e20, 1.5e20]),
    )
    near = narrow.optimum(1e20)
    assert near.parameters == pytest.approx(LAW.optimum(1e20).parameters, rel=0.02)
    assert near.tokens == pytest.approx(LAW.optimum(1e20).tokens, rel=0.02)
    assert near.loss == pytest.approx(LAW.optimum(1e20).loss, rel=1e-3)


def test_profiles_between_the_runs_of_a_grid():
    """A grid of sizes and tokens has no two runs of one compute."""
    sizes, tokens = np.meshgrid(np.geomspace(1e8, 2e10, 9), np.geomspace(1e9, 1e12, 17))
    arrays = sizes.ravel(), tokens.ravel(), 6.1 * (sizes * tokens).ravel()
    measured = Measurements(*arrays, LAW.loss(*arrays), tuple(map(str, range(sizes.size))))
    assert fit_profiles(measured).a == pytest.approx(LAW.exponents()[0], abs=0.03)


def test_the_envelope_of_learning_curves():
    allocation = fit_envelope(runs(np.geomspace(1e8, 1e10, 15), [3e21], points=60), draws=5)
    a, b = LAW.exponents()
    assert allocation.a == pytest.approx(a, abs=0.02) and allocation.b == pytest.approx(b, abs=0.02)
    assert allocation.optimum(1e20).parameters == pytest.approx(LAW.optimum(1e20).parameters, rel=0.1)
    assert allocation.optimum(1e20).loss == pytest.approx(LAW.optimum(1e20).loss, rel=0.01)


def test_too_little_is_refused():
    with pytest.raises(InputError, match="approach 1 compares learning curves, and fewer than three runs have one"):
        fit_envelope(runs(SIZES, [1e20]))
    with pytest.raises(InputError, match="approach 2 needs two amounts of compute or more"):
        fit_profiles(runs(SIZES, [1e20]))
    with pytest.raises(InputError, match="between which the best one lies"):
        fit_profiles(runs(np.geomspace(1e11, 1e12, 5), [1e19, 1e20]))  # all too large
