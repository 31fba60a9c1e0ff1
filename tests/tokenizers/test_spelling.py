"""Tokens as people read them."""

import pytest

from t5x_lite.data import ByteLevelBPE, Bytes, WordPiece, make_tokenizer
from t5x_lite.tokenizers.base import format_token, format_tokens

WORDS = "the embeddings reread another row quicker while we waited for lossy sentences"


@pytest.fixture(scope="module")
def bpe(corpus):
    return make_tokenizer(ByteLevelBPE(vocab_size=300), corpus.documents)


def glued(words):
    """The text of some words: what continues one is appended to it."""
    return "".join(word[1:] if word.startswith("·") else f" {word.removeprefix('##')}" for word in words)[1:]


def test_a_text_can_be_read_off_its_tokens(spiece, bpe):
    for tokenizer in (spiece, bpe):
        words = format_tokens(tokenizer, tokenizer.encode(WORDS))
        assert glued(words).replace("␣ ", "") == WORDS
        assert any(word.startswith("·") for word in words), "some words are several tokens"


def test_wordpiece_keeps_its_own_sign(corpus):
    tokenizer = make_tokenizer(WordPiece(vocab_size=90), corpus.documents)
    words = format_tokens(tokenizer, tokenizer.encode("embedding"))
    assert "".join(word.removeprefix("##") for word in words) == "embedding"
    assert all(word.startswith("##") for word in words[1:])
    vocabulary = tokenizer.vocabulary
    assert format_tokens(tokenizer, [vocabulary.cls_id, vocabulary.mask_id, vocabulary.size]) == (
        "[CLS]",
        "[MASK]",
        f"<id {vocabulary.size}>",
    )


def test_special_tokens_have_their_names(spiece):
    ids = [*range(3), spiece.vocabulary.sentinel_id(4)]
    assert format_tokens(spiece, ids) == ("<pad>", "</s>", "<unk>", "<extra_id_4>")


def test_blanks_and_broken_characters_are_shown(bpe):
    tokenizer = make_tokenizer(Bytes(), lambda: iter(()))
    assert format_tokens(tokenizer, tokenizer.encode("a b\n\tä")) == ("a", "␣", "b", "⏎", "⇥", "<0xC3>", "<0xA4>")
    for text, expected in (("a\n", "⏎"), ("a ж", "<0xD0>")):
        assert expected in format_tokens(bpe, bpe.encode(text))
    whole = "".join(format_tokens(bpe, bpe.encode("ж")))
    assert whole == "".join(f"<0x{byte:02X}>" for byte in "ж".encode())


def test_a_token_by_itself_says_whether_it_continues_a_word(bpe):
    inside, outside = bpe.encode("e")[0], bpe.encode("a e")[-2:]
    assert format_token(bpe, inside) == "·e"
    assert format_tokens(bpe, [inside]) == ("e",), "it begins this text"
    assert glued(format_tokens(bpe, bpe.encode("a e"))).replace("␣ ", "") == "a e", outside


def test_every_id_has_a_word(spiece, bpe):
    for tokenizer in (spiece, bpe):
        words = format_tokens(tokenizer, range(tokenizer.vocabulary.size))
        assert all(word and not word.isspace() and word.isprintable() for word in words)
