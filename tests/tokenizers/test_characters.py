"""Words by their characters: ids, spans, saving."""

import pytest

from t5x_lite.data import WordCharacters, load_tokenizer, make_tokenizer
from t5x_lite.data.tasks.question_answering import tokens_of
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import format_tokens
from t5x_lite.tokenizers.config import expected_vocabulary, is_trained, saved_config

TEXT = "Née in Łódź, she  left\nearly."


@pytest.fixture(scope="module", params=["punctuation", "blanks"])
def tokenizer(request):
    return make_tokenizer(WordCharacters(request.param), iter)


def test_every_word_begins_with_a_mark(tokenizer):
    words = TEXT.split() if tokenizer.split == "blanks" else ["Née", "in", "Łódź", ",", "she", "left", "early", "."]
    assert tokenizer.encode(TEXT) == [n for word in words for n in (258, *word.encode())]
    assert tokenizer.decode([256, *tokenizer.encode(TEXT), 257, 260]) == " ".join(words)
    assert tokenizer.encode(" \n") == []


def test_the_mark_has_the_span_of_the_word(tokenizer):
    ids, spans = tokenizer.encode_with_offsets([TEXT])[0]
    assert [TEXT[start:end] for start, end in spans[ids == 258]] == tokenizer.decode(ids).split(" ")
    assert (spans[ids < 256, 0] == spans[ids < 256, 1]).all()
    # So an answer is found at the marks of its first and its last word.
    first, last = tokens_of(spans, TEXT.index("Łódź"), TEXT.index("left") + 3)
    assert [TEXT[slice(*spans[n])] for n in (first, last)] == [
        "Łódź," if tokenizer.split == "blanks" else "Łódź",
        "left",
    ]


def test_a_span_has_the_whole_of_its_last_word(tokenizer):
    ids = [256, *tokenizer.encode("a Łódź, then"), 257]
    assert tokenizer.decode_span(ids, 3, 3) == ("Łódź" if tokenizer.split == "punctuation" else "Łódź,")
    assert tokenizer.decode_span(ids, 1, 3).startswith("a Łódź")


def test_special_ids_and_words(tokenizer):
    v = tokenizer.vocabulary
    assert (v.size, v.cls_id, v.sep_id, v.eos_id, v.pad_id) == (261, 256, 257, 257, 260)
    continues = v.continues_word()
    assert continues[:256].all()
    assert not continues[256:].any()
    # A text gives no special id.
    assert set(tokenizer.encode("<S> </S> <pad>")) <= {*range(256), 258}
    assert format_tokens(tokenizer, [256, 258, 97, 257])[0] == "<S>"


def test_it_is_saved_and_read(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode(TEXT) == tokenizer.encode(TEXT)
    config = saved_config(tokenizer, tmp_path)
    assert config == WordCharacters(tokenizer.split)
    assert not is_trained(config)
    assert expected_vocabulary(config, 261) == tokenizer.vocabulary


def test_a_damaged_file(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(path.read_text().replace(tokenizer.split, "nowhere"))
    with pytest.raises(InputError, match="is corrupt"):
        load_tokenizer(tmp_path)
