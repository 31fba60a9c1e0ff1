from dataclasses import dataclass

import jax.numpy as jnp
import pytest

from t5x_lite.decoding import BeamSearch, Greedy, Method, Sampling, decode
from t5x_lite.decoding.sampling import write_left_to_right
from t5x_lite.errors import InputError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sampling(temperature=0.0), "temperature=0.0 is not in .0, inf.; choose e.g. 0.7"),
        (lambda: Sampling(temperature=-1.0), "temperature=-1.0"),
        (lambda: Sampling(temperature=float("nan")), "temperature=nan"),
        (lambda: Sampling(top_k=-1), "top_k=-1 is too small; choose e.g. 50, or 0"),
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


@dataclass(frozen=True)
class NthBest(Method):
    """A method from outside the package: the token of some rank, again and again."""

    rank: int = 0
    num_results: int = 1

    def check(self, vocab_size):
        if self.rank >= vocab_size:
            raise InputError(f"rank={self.rank} is not below {vocab_size}; choose a smaller one")

    def write(self, start):
        def choose(logits, index):
            return jnp.argsort(-logits, axis=1)[:, self.rank]

        return write_left_to_right(choose, self.num_results, start)


def test_a_method_from_outside_the_package_decodes(model):
    inputs = jnp.array([[3], [40]])
    options = {"start_ids": jnp.zeros(2, jnp.int32), "max_length": 7, "eos_id": 1, "pad_id": 0}
    best, greedy = (decode(*model, inputs, method=method, **options) for method in (NthBest(), Greedy()))
    assert best.ids.tolist() == greedy.ids.tolist()
    second = decode(*model, inputs, method=NthBest(1, 2), **options)
    assert second.ids.shape == (2, 2, 7)
    assert second.ids.tolist() != greedy.ids.tolist()
    with pytest.raises(InputError, match="rank=6 is not below 6"):
        decode(*model, inputs, method=NthBest(6), **options)
