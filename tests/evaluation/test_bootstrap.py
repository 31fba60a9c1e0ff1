"""Intervals of the bootstrap."""

import numpy as np
import pytest

from t5x_lite.evaluation.bootstrap import intervals


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution():
    values = np.random.default_rng(0).normal(3.0, 2.0, 900)
    low, high = intervals(lambda some: {"mean": values[some].mean()}, 900, resamples=2000)["mean"]
    half = 1.96 * values.std() / 30
    assert (low, high) == (pytest.approx(values.mean() - half, abs=0.02), pytest.approx(values.mean() + half, abs=0.02))


def test_the_same_draws_for_every_figure_and_every_call():
    values = np.random.default_rng(0).random(50)

    def figures(some):
        return {"mean": values[some].mean(), "twice": 2 * values[some].mean()}

    found = intervals(figures, 50, resamples=100)
    assert found == intervals(figures, 50, resamples=100)
    assert found["twice"] == (2 * found["mean"][0], 2 * found["mean"][1])
    assert found != intervals(figures, 50, resamples=100, seed=1)
