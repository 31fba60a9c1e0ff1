import math

import pytest

from t5x_lite.errors import InputError
from t5x_lite.optim.schedules import Constant, CosineDecay, InverseSqrt, LinearDecay, StepDecay, T5InverseSqrt


@pytest.mark.parametrize("step", [1, 4000, 100_000])
def test_inverse_sqrt_is_equation_3_of_vaswani(step):
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert float(InverseSqrt(embed_dim=512, warmup_steps=4000).learning_rate(step)) == pytest.approx(expected, rel=3e-7)


@pytest.mark.parametrize(("step", "expected"), [(1, 0.01), (10_000, 0.01), (40_000, 0.005), (1_000_000, 0.001)])
def test_t5_inverse_sqrt(step, expected):
    assert float(T5InverseSqrt().learning_rate(step)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("step", "expected"), [(1, 1e-3), (10, 1e-2), (55, 5e-3), (100, 0.0), (200, 0.0)])
def test_linear_decay(step, expected):
    assert float(LinearDecay(1e-2, 10, 100).learning_rate(step)) == pytest.approx(expected, abs=1e-9)


def test_linear_decay_without_warmup_starts_at_the_peak():
    assert float(LinearDecay(1e-2, 0, 100).learning_rate(0)) == 0.0
    assert float(LinearDecay(1e-2, 0, 100).learning_rate(1)) == pytest.approx(0.0099)


@pytest.mark.parametrize("step", [1, 119, 120, 40_000, 82_650, 82_651, 95_367])
def test_cosine_decay_is_that_of_gpt3(step):
    """Brown et al. 2020, appendix B: linear warm-up, a cosine down to a tenth, and a tenth from then on."""
    share = (min(step, 82_650) - 119) / (82_650 - 119)
    expected = 6e-5 * (step / 119 if step <= 119 else 0.1 + 0.9 * (1 + math.cos(math.pi * share)) / 2)
    schedule = CosineDecay(peak=6e-5, warmup_steps=119, total_steps=82_650, floor=0.1)
    assert float(schedule.learning_rate(step)) == pytest.approx(expected, rel=1e-5)


def test_cosine_decay_without_warmup_and_floor():
    schedule = CosineDecay(peak=2.0, warmup_steps=0, total_steps=100, floor=0.0)
    rates = [float(schedule.learning_rate(step)) for step in (1, 50, 100)]
    assert rates == pytest.approx([1 + math.cos(math.pi / 100), 1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(1, 0.1 + 0.3 / 50), (25, 0.25), (50, 0.4), (51, 0.4), (300, 0.4), (301, 0.04), (601, 0.004), (801, 4e-4)],
)
def test_step_decay_is_that_of_goyal(step, expected):
    """Goyal et al. 2017, an epoch of 10 updates: 5 of warm-up from the rate of one worker, a tenth after 30, 60, 80."""
    schedule = StepDecay(peak=0.4, start=0.1, warmup_steps=50, boundaries=(300, 600, 800))
    assert float(schedule.learning_rate(step)) == pytest.approx(expected, rel=1e-5)


def test_step_decay_without_warmup_and_boundaries_is_constant():
    rates = [float(StepDecay(0.2, boundaries=()).learning_rate(step)) for step in (1, 10**6)]
    assert rates == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(0.0),
        lambda: InverseSqrt(warmup_steps=0),
        lambda: InverseSqrt(embed_dim=-1),
        lambda: T5InverseSqrt(factor=0.0),
        lambda: LinearDecay(1e-3, 10, 10),
        lambda: LinearDecay(float("nan")),
        lambda: CosineDecay(warmup_steps=10, total_steps=10),
        lambda: CosineDecay(peak=0.0),
        lambda: CosineDecay(floor=1.5),
        lambda: CosineDecay(floor=float("nan")),
        lambda: StepDecay(boundaries=(20, 10)),
        lambda: StepDecay(boundaries=(10, 10)),
        lambda: StepDecay(warmup_steps=10, boundaries=(5, 20)),
        lambda: StepDecay(warmup_steps=-1),
    ],
)
def test_values_out_of_range_are_named(make):
    with pytest.raises(InputError, match="="):
        make()
