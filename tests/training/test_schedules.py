import pytest

from t5x_lite.errors import InputError
from t5x_lite.training.schedules import Constant, InverseSqrt, LinearDecay, T5InverseSqrt


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(0.0),
        lambda: InverseSqrt(warmup_steps=0),
        lambda: InverseSqrt(embed_dim=-1),
        lambda: T5InverseSqrt(factor=0.0),
        lambda: LinearDecay(1e-3, 10, 10),
        lambda: LinearDecay(float("nan")),
    ],
)
def test_values_out_of_range_are_named(make):
    with pytest.raises(InputError, match="="):
        make()
