import pytest

from t5x_lite.decoding import BeamSearch, Greedy, Sampling
from t5x_lite.errors import InputError
from t5x_lite.pretrained.choices import choose_method


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Greedy()),
        ({"temperature": 0.0, "top_p": 0.5}, Greedy()),
        ({"num_beams": 4}, BeamSearch(4)),
        (
            {"num_beams": 3, "alpha": 1.0, "early_stopping": True, "num_results": 2, "exhaustive_eos": True},
            BeamSearch(3, 1.0, True, 2, True),
        ),
        ({"num_beams": 2, "length_power": 1.0}, BeamSearch(2, length_power=1.0)),
        ({"temperature": 0.7}, Sampling(0.7)),
        ({"top_k": 5, "num_results": 3}, Sampling(top_k=5, num_results=3)),
        ({"top_p": 0.9}, Sampling(top_p=0.9)),
    ],
)
def test_options_and_what_they_mean(options, expected):
    assert choose_method(**options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "num_beams=0"),
        ({"num_beams": 2, "temperature": 0.7}, "num_beams=2 and temperature=0.7 exclude each other"),
        ({"num_beams": 2, "top_k": 5}, "num_beams=2 and top_k=5"),
        ({"num_beams": 2, "top_p": 0.9}, "num_beams=2 and top_p=0.9"),
        ({"num_results": 2}, "num_results=2 needs several beams or sampling; choose num_beams=2"),
        ({"num_results": 0}, "num_results=0"),
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_k": -1}, "top_k=-1"),
    ],
)
def test_what_cannot_be_meant(options, message):
    with pytest.raises(InputError, match=message):
        choose_method(**options)
