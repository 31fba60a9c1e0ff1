"""A vocabulary of words, by their frequency."""

import pytest

from t5x_lite.convert.tokenizers import read_tokenizer
from t5x_lite.data import TokenizerFile, Words, load_tokenizer, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import expected_vocabulary, is_trained, saved_config

TEXT = "the cat saw the dog . the dog saw a cat , and the bird flew\naway . <unk> the"


@pytest.fixture(scope="module")
def words():
    return make_tokenizer(Words(9), lambda: iter([TEXT]))


def test_words_are_numbered_by_their_counts(words):
    assert [words.piece(n) for n in range(words.vocabulary.size)] == [
        *("<eos>", "<unk>", "the", ".", "cat", "dog", "saw", ",", "a"),
    ]
    v = words.vocabulary
    assert (v.pad_id, v.eos_id, v.unk_id, v.cls_id, v.mask_id) == (0, 0, 1, None, None)


def test_texts_and_back(words):
    assert words.encode("the bird saw\n a  dog") == [2, 1, 6, 8, 5]
    # In a corpus no text gives the id that closes it.
    assert [ids.tolist() for ids in words.encode_batch(["the <unk> cat", "<eos>"])] == [[2, 1, 4], [1]]
    assert words.decode([2, 4, 6, 1, 0]) == "the cat saw <unk>"
    spans = words.encode_with_offsets(["the  bird saw"])[0].spans
    assert spans.tolist() == [[0, 3], [5, 9], [10, 13]]


def test_it_is_saved_and_read(words, tmp_path):
    words.save(tmp_path)
    for again in (
        load_tokenizer(tmp_path),
        make_tokenizer(saved_config(words, tmp_path), lambda: iter(())),
        make_tokenizer(TokenizerFile(str(tmp_path)), lambda: iter(())),
        read_tokenizer(tmp_path, {}),
    ):
        assert again.fingerprint == words.fingerprint
    assert isinstance(saved_config(words, tmp_path), Words)


def test_a_small_corpus_fills_fewer_ids():
    config = Words(100)
    assert is_trained(config) and expected_vocabulary(config, 7).size == 100
    assert make_tokenizer(config, lambda: iter([TEXT])).vocabulary.size == 13


def test_what_cannot_be():
    with pytest.raises(InputError, match="the corpus is empty"):
        make_tokenizer(Words(), lambda: iter([]))
    with pytest.raises(InputError, match="vocab_size=2"):
        Words(2)
