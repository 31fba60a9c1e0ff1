import json
import pickle
import random

import numpy as np
import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from t5x_lite.data import ByteLevelBPE, WordPiece, load_tokenizer, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.pipelines import wordpiece_description
from t5x_lite.tokenizers.subword import SubwordTokenizer, model_type

TEXTS = ["the model reads a row of ids", "naïve 猫 🐈, the embedding!", " two  blanks\n", ""]


@pytest.fixture(scope="module")
def wordpiece(corpus):
    return make_tokenizer(WordPiece(200, character_coverage=1.0), corpus.documents)


@pytest.fixture(scope="module")
def byte_level(corpus):
    return make_tokenizer(ByteLevelBPE(400), corpus.documents)


@pytest.fixture(scope="module")
def unigram():
    """As T5's tokenizer.json is: the special tokens are pieces with score 0, the best there is."""
    pieces = ["<pad>", "</s>", "<unk>", "▁the", "▁", "t", "h", "e", "<", ">", "/", "s", "▁s", "pad"]
    scores = [0.0] * 3 + [-float(i) for i in range(1, len(pieces) - 2)]
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(5))]
    vocabulary = [*zip(pieces, scores, strict=True), *((token, 0.0) for token in sentinels)]
    library = Library(models.Unigram(vocabulary, unk_id=2))
    library.pre_tokenizer, library.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    library.add_special_tokens(["<pad>", "</s>", "<unk>", *sentinels])
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return SubwordTokenizer(json.loads(library.to_str()), roles)


@pytest.fixture(params=["wordpiece", "byte_level", "unigram"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def test_batches_encode_like_single_texts(tokenizer):
    arrays = tokenizer.encode_batch(TEXTS)
    assert all(array.dtype == np.int32 for array in arrays)
    assert [array.tolist() for array in arrays] == [tokenizer.encode(text) for text in TEXTS]


def test_written_special_tokens_are_text_in_a_batch(tokenizer):
    names = [token["content"] for token in tokenizer.description["added_tokens"]]
    special = {tokenizer._marked.token_to_id(name) for name in names} - {tokenizer.vocabulary.unk_id}
    for name in names:
        text = f"the {name} the{name}the {name}"
        assert name in ("<unk>", "[UNK]") or special & set(tokenizer.encode(text))
        assert not special & set(tokenizer.encode_batch([text])[0].tolist())


def test_a_written_unknown_token_is_text_in_a_batch(unigram):
    assert unigram.encode("</s>") == [1]
    assert unigram.vocabulary.unk_id not in unigram.encode_batch(["</s> <pad>"])[0]


def test_masks_are_written_and_read(wordpiece, byte_level):
    for tokenizer, mask in ((wordpiece, "[MASK]"), (byte_level, "<mask>")):
        assert tokenizer.mask_token == mask
        ids = tokenizer.encode(f"the {mask} reads {mask} row")
        assert ids.count(tokenizer.vocabulary.mask_id) == 2
        assert tokenizer.decode(ids) == f"the {mask} reads {mask} row"
        assert tokenizer.encode(tokenizer.decode(ids)) == ids


def test_the_blank_before_a_byte_level_mask_belongs_to_it(byte_level):
    assert byte_level.encode("the <mask> row") == byte_level.encode("the<mask> row")
    assert byte_level.encode("the <mask>row") != byte_level.encode("the <mask> row")


def test_decode_leaves_out_what_is_no_text(wordpiece, byte_level):
    for tokenizer in (wordpiece, byte_level):
        v = tokenizer.vocabulary
        ids = [v.cls_id, *tokenizer.encode("the model"), v.sep_id, v.pad_id, v.size, -1, 9999]
        assert tokenizer.decode(np.array(ids)) == "the model"


@pytest.mark.parametrize("text", ["naïve 猫 🐈", " two  blanks\n", "a<extra_id_0>b ", "\t", "￿"])
def test_bytes_can_write_any_text(byte_level, text):
    assert byte_level.decode(byte_level.encode(text)) == text
    assert byte_level.vocabulary.unk_id not in byte_level.encode(text)


def test_bert_reads_the_example_of_its_authors():
    """google-research/bert, tokenization_test.py: the words of a vocabulary of ten pieces."""
    pieces = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ",", "[PAD]"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    special = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    tokenizer = SubwordTokenizer(wordpiece_description(vocabulary, special, lowercase=True), special)
    assert tokenizer.encode("UNwant\u00e9d,running") == [7, 4, 5, 10, 8, 9]
    assert tokenizer.encode("unwantedX running") == [0, 8, 9]
    assert tokenizer.mask_token is None and tokenizer.vocabulary.mask_id is None


def test_words_begin_where_they_do(wordpiece, byte_level, corpus):
    """Each word is one id that begins it and others that continue it. A text's first byte-level word has no blank."""
    for tokenizer, first in ((wordpiece, 1), (byte_level, 0)):
        continues = tokenizer.vocabulary.continues_word()
        for text in corpus.texts[:60]:
            words = [word for word in text.split() if word.isascii()]
            ids = tokenizer.encode(" ".join(words))
            assert (~continues[ids]).sum() == len(words) - 1 + first
        assert not continues[list(tokenizer.vocabulary.special_ids)].any()
        assert 0 < continues.mean() < 1


def test_unigram_pieces_and_sentinels(unigram):
    vocabulary = unigram.vocabulary
    assert (vocabulary.first_sentinel_id, vocabulary.num_sentinels, vocabulary.size) == (18, 5, 19)
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id, vocabulary.eos_id) == (None, None, None, 1)
    assert unigram.encode("the<extra_id_0> the") == [3, 18, 3]
    assert unigram.decode([3, 18, 3, 1, 0]) == "the<extra_id_0> the"
    with pytest.raises(InputError, match="<extra_id_5> is not one of the 5 sentinels"):
        unigram.encode("<extra_id_5>")
    begins = np.flatnonzero(~vocabulary.continues_word())
    assert begins.tolist() == [0, 1, 2, 3, 4, 12, *range(14, 19)]


def test_saving_and_loading(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.vocabulary == tokenizer.vocabulary
    assert loaded.mask_token == tokenizer.mask_token
    assert [loaded.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


def test_everything_that_determines_ids_is_in_the_fingerprint(wordpiece):
    description, special = wordpiece.description, wordpiece.special
    normalizer = {**description["normalizer"], "strip_accents": False}
    no_mask = {role: token for role, token in special.items() if role != "mask_token"}
    vocabulary = dict(description["model"]["vocab"])
    pieces = list(vocabulary)
    vocabulary |= {pieces[-1]: vocabulary[pieces[-2]], pieces[-2]: vocabulary[pieces[-1]]}
    others = [
        SubwordTokenizer({**description, "normalizer": normalizer}, special),
        SubwordTokenizer(description, no_mask),
        SubwordTokenizer({**description, "model": {**description["model"], "vocab": vocabulary}}, special),
    ]
    assert len({wordpiece.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_equal_files_in_another_order_are_equal(wordpiece):
    description = wordpiece.description
    shuffled = dict(reversed(description["model"]["vocab"].items()))
    other = SubwordTokenizer({**description, "model": {**description["model"], "vocab": shuffled}}, wordpiece.special)
    assert other.fingerprint == wordpiece.fingerprint


def test_texts_are_neither_cut_nor_padded_nor_left_to_chance(byte_level):
    library = Library.from_str(byte_level.to_json())
    library.enable_truncation(3)
    library.enable_padding(length=20)
    description = json.loads(library.to_str())
    description["model"]["dropout"] = 0.5
    tokenizer = SubwordTokenizer(description, byte_level.special)
    assert tokenizer.encode(TEXTS[0]) == byte_level.encode(TEXTS[0])
    assert tokenizer.encode_batch(TEXTS[:1])[0].tolist() == byte_level.encode(TEXTS[0])


def test_tokens_added_for_text_stay(byte_level):
    library = Library.from_str(byte_level.to_json())
    library.add_tokens(["therow", AddedToken("<sep>", special=True)])
    tokenizer = SubwordTokenizer(json.loads(library.to_str()), byte_level.special)
    for ids in (tokenizer.encode("a therow"), tokenizer.encode_batch(["a therow"])[0]):
        assert 400 in ids
    assert 401 in tokenizer.encode("<sep>") and 401 not in tokenizer.encode_batch(["<sep>"])[0]
    assert tokenizer.vocabulary.size == 402
    assert not tokenizer.vocabulary.continues_word()[[400, 401]].any()


def test_model_types_of_old_files(tokenizer):
    model = {field: value for field, value in tokenizer.description["model"].items() if field != "type"}
    assert model_type({"model": model}) == tokenizer.description["model"]["type"]


@pytest.mark.parametrize("role", ["pad_token", "unk_token"])
def test_roles_that_must_be_there(wordpiece, role):
    special = {name: token for name, token in wordpiece.special.items() if name != role}
    with pytest.raises(InputError, match=f"tokenizer.json has no {role}"):
        SubwordTokenizer(wordpiece.description, special)


@pytest.mark.parametrize(
    "change", [{"model": None}, {"model": {"type": "WordPiece"}}, {"model": {"vocab": {"a": "b"}}}, {"normalizer": 3}]
)
def test_descriptions_of_nothing(wordpiece, change):
    with pytest.raises(InputError, match="is not a tokenizer.json"):
        SubwordTokenizer({**wordpiece.description, **change}, wordpiece.special)


def split_at(pattern) -> dict:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize("pattern", [r"(a+)+$", "(a|a)*b", "(?:a*){2,}", "((ab)*)*", "(x(y|z)+)+", "(?:(a)+|b)+"])
def test_patterns_that_can_take_forever(byte_level, pattern):
    change = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split_at(pattern)]}}
    with pytest.raises(InputError, match="tokenizer.json has the pattern .* which can take forever"):
        SubwordTokenizer({**byte_level.description, **change}, byte_level.special)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?i:'s|'t|'re|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)",
        r" ?[^(\s|[.,!?…。，、।۔،])]+",
        r"\d{3}(?=(?:\d{3})*\b)",
    ],
)
def test_patterns_that_others_use(byte_level, pattern):
    change = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split_at(pattern)]}}
    assert SubwordTokenizer({**byte_level.description, **change}, byte_level.special).encode("a 12345")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "config",
    [
        ByteLevelBPE(vocab_size=400),
        ByteLevelBPE(vocab_size=400, layout="gpt2"),
        WordPiece(),
        WordPiece(lowercase=False),
    ],
    ids=["roberta", "gpt2", "wordpiece", "cased"],
)
def test_words_looked_up_are_the_library_s(prose, config, seed):
    """Texts are split into words whose ids are kept: nothing that a blank stands beside may change with that."""
    tokenizer = make_tokenizer(config, prose.documents)
    draw = random.Random(seed)
    pieces = list(
        " \n\t\r\x00\x1c\x85\xa0\u2003\u3000\u200b\u0301\u0345'’.,!-_01ab cdÀßΣσς中カि한\U0001f600\u200d\ufeff "
    )
    pieces += ["  ", " '", " 's", "'s ", "n't", "\n\n", " \n", "\n ", "e\u0301", " \u0301", "<s>", "[MASK]"]
    texts = ["".join(draw.choices(pieces, k=draw.randrange(40))) for _ in range(400)] + list(prose.texts)
    expected = [encoding.ids for encoding in tokenizer._unmarked.encode_batch(texts, add_special_tokens=False)]
    assert tokenizer._words is not None
    assert pickle.loads(pickle.dumps(tokenizer)).fingerprint == tokenizer.fingerprint
    for _ in range(2):  # unknown words, then known ones
        assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == expected
