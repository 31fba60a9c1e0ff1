import pytest

from t5x_lite.data import ByteLevelBPE, SentencePiece, WordPiece, make_tokenizer
from t5x_lite.errors import InputError

CONFIGS = [WordPiece(200), WordPiece(200, lowercase=False), ByteLevelBPE(400), ByteLevelBPE(400, layout="gpt2")]


def tokens(tokenizer):
    return list(tokenizer.description["model"]["vocab"])


@pytest.mark.parametrize("config", CONFIGS)
def test_training_is_deterministic(corpus, config):
    assert len({make_tokenizer(config, corpus.documents).fingerprint for _ in range(3)}) == 1


def test_wordpiece_has_berts_special_ids(corpus):
    tokenizer = make_tokenizer(WordPiece(200), corpus.documents)
    assert tokens(tokenizer)[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = tokenizer.vocabulary
    ids = [vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id]
    assert ids == [*range(5)]
    assert vocabulary.eos_id == vocabulary.sep_id
    assert (vocabulary.size, vocabulary.num_sentinels) == (200, 0)


def test_byte_level_has_robertas_special_ids(corpus):
    tokenizer = make_tokenizer(ByteLevelBPE(400), corpus.documents)
    assert tokens(tokenizer)[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert tokens(tokenizer)[-1] == "<mask>"
    vocabulary = tokenizer.vocabulary
    assert (vocabulary.cls_id, vocabulary.pad_id, vocabulary.sep_id, vocabulary.unk_id) == (*range(4),)
    assert (vocabulary.size, vocabulary.mask_id, vocabulary.eos_id) == (400, 399, 2)


def test_gpt2s_layout_ends_with_its_special_tokens(corpus):
    tokenizer = make_tokenizer(ByteLevelBPE(400, layout="gpt2"), corpus.documents)
    assert all(len(token) == 1 for token in tokens(tokenizer)[:256])
    assert tokens(tokenizer)[-2:] == ["<pad>", "<|endoftext|>"]
    vocabulary = tokenizer.vocabulary
    assert (vocabulary.size, vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (400, 398, 399, 399)
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (None, None, None)
    roberta = make_tokenizer(ByteLevelBPE(403), corpus.documents)
    assert [roberta.decode([i]) for i in roberta.encode("Row of ids")] == [
        tokenizer.decode([i]) for i in tokenizer.encode("Row of ids")
    ]
    assert tokenizer.decode(tokenizer.encode("naïve 東京")) == "naïve 東京"


def test_a_byte_level_bpe_without_room_or_of_another_layout():
    with pytest.raises(InputError, match="vocab_size=257 has no room.*choose 258"):
        ByteLevelBPE(257, layout="gpt2")
    with pytest.raises(InputError, match="layout='gpt3' is unknown; choose roberta or gpt2"):
        ByteLevelBPE(layout="gpt3")


@pytest.mark.parametrize("config", CONFIGS)
def test_merging_shortens_the_corpus(corpus, config):
    """A word of the corpus ends up as one piece, which its characters alone would not give."""
    tokenizer = make_tokenizer(config, corpus.documents)
    assert len(tokenizer.encode(" vocabulary")) == 1
    assert len(tokenizer.encode(" vyralubaco")) > 5


@pytest.mark.parametrize("config", [WordPiece(), ByteLevelBPE()])
def test_a_small_corpus_fills_fewer_ids(corpus, config):
    size = make_tokenizer(config, corpus.documents).vocabulary.size
    assert size < 1000
    assert make_tokenizer(type(config)(size), corpus.documents).vocabulary.size == size


def test_capitals_and_accents():
    texts = ["Über Ärger über ärger UBER ARGER"] * 9
    lower, cased = (make_tokenizer(WordPiece(100, lowercase=flag), lambda: iter(texts)) for flag in (True, False))
    assert lower.encode("Über Ärger") == lower.encode("uber arger")
    assert lower.decode(lower.encode("ÜBER")) == "uber"
    assert cased.encode("Über") != cased.encode("über")
    assert cased.decode(cased.encode("Über ÜBER")).startswith("Über")
    assert lower.fingerprint != cased.fingerprint


def test_rare_characters_are_unknown():
    """99 % of these 1,000 characters are one and the same; of two equally rare ones, both or none get pieces."""
    texts = ["a" * 495] * 2 + ["b" * 5 + " " + "c" * 5]
    for coverage, known in ((0.99, "a"), (0.992, "abc"), (1.0, "abc")):
        tokenizer = make_tokenizer(WordPiece(100, character_coverage=coverage), lambda: iter(texts))
        unknown = tokenizer.vocabulary.unk_id
        assert "".join(letter for letter in "abc" if tokenizer.encode(letter) != [unknown]) == known


def test_no_room_for_the_characters(corpus):
    def size_of(vocab_size):
        return make_tokenizer(WordPiece(vocab_size), corpus.documents).vocabulary.size

    with pytest.raises(InputError, match="vocab_size=40 has no room") as raised:
        size_of(40)
    least = int(str(raised.value).split("choose ")[1].split()[0])
    assert size_of(least) == least
    with pytest.raises(InputError, match=f"vocab_size={least - 1} has no room"):
        size_of(least - 1)


@pytest.mark.parametrize("config", [WordPiece(200), ByteLevelBPE(400), SentencePiece(90, layout="albert")])
def test_an_empty_corpus(config):
    with pytest.raises(InputError, match="corpus is empty"):
        make_tokenizer(config, lambda: iter([" "]))


def test_training_is_silent(corpus, capfd):
    for config in CONFIGS:
        make_tokenizer(config, corpus.documents)
    assert capfd.readouterr() == ("", "")
