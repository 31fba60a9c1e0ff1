import random

import pytest

from t5x_lite.data import MarianFiles, SentencePiece, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import SentencePieceTokenizer
from t5x_lite.tokenizers.marian import MarianTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    """Two models of few pieces, and a vocabulary of both and a language."""
    english = ["the", "model", "reads", "a", "row", "of", "ids", "and", "writes", "another", "row", "of", "words"]
    german = ["das", "Modell", "liest", "eine", "Zeile", "und", "schreibt", "eine", "andere", "mit", "Wörtern"]
    models = []
    for words in (english, german):
        draw = random.Random(0)
        corpus = [" ".join(draw.choices(words, k=9)) for _ in range(200)]
        models.append(make_tokenizer(SentencePiece(45, algorithm="bpe"), lambda c=corpus: iter(c)).model)
    opened = [SentencePieceTokenizer(model, 0) for model in models]
    pieces = [one.piece(token_id) for one in opened for token_id in range(one.vocabulary.size)]
    named = ["</s>", "<unk>", ">>deu<<", *dict.fromkeys(piece for piece in pieces if piece[0] != "<"), "<pad>"]
    return MarianTokenizer(*models, {piece: token_id for token_id, piece in enumerate(named)})


def test_ids_are_those_of_the_vocabulary(tokenizer):
    vocabulary = tokenizer.vocabulary
    assert (vocabulary.eos_id, vocabulary.unk_id) == (0, 1)
    assert vocabulary.pad_id == vocabulary.size - 1 == tokenizer.ids["<pad>"]
    the = tokenizer.ids["▁the"]
    assert tokenizer.encode("the") == tokenizer.encode_batch(["the"])[0].tolist() == [the]
    assert tokenizer.encode("the</s>the 京") == [the, 0, the, tokenizer.ids["▁"], 1]
    assert tokenizer.encode_batch(["the</s>"])[0].tolist().count(0) == 0
    assert not vocabulary.continues_word()[[the, tokenizer.ids[">>deu<<"]]].any()


def test_the_sides_are_split_in_two_ways(tokenizer):
    target_side = tokenizer.target_side
    source, target = tokenizer.encode("das Modell liest"), target_side.encode("das Modell liest")
    assert len(target) < len(source)
    assert target_side.target_side is target_side
    assert target_side.vocabulary == tokenizer.vocabulary
    assert target_side.fingerprint != tokenizer.fingerprint
    for either in (tokenizer, target_side):
        assert either.decode([*target, 0, tokenizer.vocabulary.pad_id]) == "das Modell liest"


def test_a_text_may_begin_with_its_language(tokenizer):
    german = tokenizer.ids[">>deu<<"]
    assert tokenizer.encode(">>deu<< the model") == [german, *tokenizer.encode("the model")]
    assert tokenizer.encode(">>nld<< the")[0] == tokenizer.vocabulary.unk_id
    assert german not in tokenizer.encode("the >>deu<< model")


def test_folders_that_are_not_whole(tokenizer, tmp_path):
    config = MarianFiles(str(tmp_path))
    tokenizer.write_files(tmp_path)
    assert make_tokenizer(config, iter).fingerprint == tokenizer.fingerprint
    for content, message in (
        ('{"a": 0}', r"vocab.json has no <pad> or </s> or <unk>"),
        ('{"a": "b"}', r"vocab.json gives no ids"),
        ("{", r"vocab.json cannot be read as JSON"),
    ):
        (tmp_path / "vocab.json").write_text(content)
        with pytest.raises(InputError, match=message):
            make_tokenizer(config, iter)
    tokenizer.write_files(tmp_path)
    (tmp_path / "source.spm").write_bytes(b"none")
    with pytest.raises(InputError, match=r"source.spm is not a SentencePiece model"):
        make_tokenizer(config, iter)
    (tmp_path / "target.spm").unlink()
    with pytest.raises(InputError, match=r"folder='.*': .*target.spm cannot be read"):
        make_tokenizer(config, iter)
    (tmp_path / "target_vocab.json").write_text("{}")
    with pytest.raises(InputError, match="a vocabulary for each side"):
        make_tokenizer(config, iter)
