import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError

T5 = {"size": 32100, "pad_id": 0, "eos_id": 1, "unk_id": 2, "first_sentinel_id": 32099, "num_sentinels": 100}


def test_sentinel_numbers_and_ids_are_inverse():
    vocabulary = Vocabulary(**T5)
    assert [vocabulary.sentinel_number(vocabulary.sentinel_id(n)) for n in range(100)] == list(range(100))
    assert vocabulary.sentinel_number(31999) is None
    assert vocabulary.sentinel_number(32100) is None


@pytest.mark.parametrize("number", [-1, 100])
def test_a_sentinel_that_does_not_exist(number):
    with pytest.raises(InputError, match=f"<extra_id_{number}>.*100 sentinels"):
        Vocabulary(**T5).sentinel_id(number)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pad_id": -1}, "pad_id=-1"),
        ({"eos_id": 32100}, "eos_id=32100"),
        ({"num_sentinels": -1}, "num_sentinels=-1"),
        ({"first_sentinel_id": 32100}, "first_sentinel_id=32100"),
        ({"num_sentinels": 40000}, "num_sentinels=40000"),
        ({"num_sentinels": 32098}, "special id"),
        ({"mask_id": 32050}, "special id"),
        ({"cls_id": 32100}, "cls_id=32100"),
        ({"sep_id": -1}, "sep_id=-1"),
        ({"continuations": bytes(4012)}, "continuations has 4012 bytes, .* takes 4013"),
    ],
)
def test_ranges_are_checked(change, message):
    with pytest.raises(InputError, match=message):
        Vocabulary(**{**T5, **change})


def test_no_sentinels_is_fine():
    assert Vocabulary(10, 0, 1, 2, first_sentinel_id=9, num_sentinels=0).sentinel_number(9) is None


def test_special_ids_are_distinct_and_in_order():
    roberta = Vocabulary(50_265, pad_id=1, eos_id=2, unk_id=3, cls_id=0, sep_id=2, mask_id=50_264)
    assert roberta.special_ids == (0, 1, 2, 3, 50_264)
    assert Vocabulary(**T5).special_ids == (0, 1, 2)


@pytest.mark.parametrize("size", [3, 8, 17])
def test_continuations_are_a_bit_an_id(size):
    flags = np.arange(size) % 3 == 1
    vocabulary = Vocabulary(size, continuations=np.packbits(flags).tobytes())
    assert vocabulary.marks_words
    np.testing.assert_array_equal(vocabulary.continues_word(), flags)
    assert hash(vocabulary) == hash(Vocabulary(size, continuations=np.packbits(flags).tobytes()))


def test_a_vocabulary_that_knows_no_words():
    assert not Vocabulary(**T5).marks_words
    with pytest.raises(InputError, match="does not say which ids continue a word; use a tokenizer of words"):
        Vocabulary(**T5).continues_word()


def test_padding_may_be_the_eos():
    assert Vocabulary(9, pad_id=3, eos_id=4).has_padding
    assert not Vocabulary(9, pad_id=4, eos_id=4).has_padding
