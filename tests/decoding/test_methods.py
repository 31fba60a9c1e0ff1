import pytest

from t5x_lite.decoding import BeamSearch, Sampling
from t5x_lite.errors import InputError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sampling(temperature=0.0), "temperature=0.0 is not above 0"),
        (lambda: Sampling(temperature=-1.0), "temperature=-1.0"),
        (lambda: Sampling(temperature=float("nan")), "temperature=nan"),
        (lambda: Sampling(top_k=-1), "top_k=-1 is negative"),
        (lambda: Sampling(top_p=0.0), "top_p=0.0 is not in \\(0, 1\\]"),
        (lambda: Sampling(top_p=1.1), "top_p=1.1"),
        (lambda: Sampling(top_p=float("nan")), "top_p=nan"),
        (lambda: Sampling(num_results=0), "num_results=0"),
        (lambda: BeamSearch(num_beams=0), "num_beams=0"),
        (lambda: BeamSearch(num_beams=2, num_results=3), "num_results=3 exceeds num_beams=2"),
        (lambda: BeamSearch(num_results=0), "num_results=0"),
        (lambda: BeamSearch(alpha=float("inf")), "alpha=inf"),
        (lambda: BeamSearch(length_power=float("nan")), "length_power=nan"),
    ],
)
def test_what_no_method_is(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_length_penalties():
    assert BeamSearch(alpha=0.0).length_penalty(9) == 1.0
    assert BeamSearch(alpha=0.6).length_penalty(7) == pytest.approx(2**0.6)
    assert BeamSearch(length_power=0.5).length_penalty(9) == pytest.approx(3.0)
