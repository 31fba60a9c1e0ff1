"""Oracle: the tokenizers that Transformers' AutoTokenizer makes of the same files."""

import json
import random
import re

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor

from t5x_lite.convert.tokenizers import read_tokenizer, write_tokenizer
from t5x_lite.data import ByteLevelBPE, SentencePiece, WordPiece, make_tokenizer
from t5x_lite.data.layouts.base import SpecialIds
from t5x_lite.tokenizers.config import SentencePieceTokenizer
from t5x_lite.tokenizers.sentencepiece import AlbertTokenizer, BigBirdTokenizer, XLNetTokenizer
from t5x_lite.tokenizers.subword import SubwordTokenizer

CONFIGS = {
    "bert": WordPiece(600),
    "distilbert": WordPiece(600, lowercase=False),
    "electra": WordPiece(600, character_coverage=1.0),
    "roberta": ByteLevelBPE(600),
    "albert": SentencePiece(400, layout="albert", character_coverage=1.0),
    "xlm-roberta": SentencePiece(400, layout="xlm-roberta"),
    "xlnet": SentencePiece(400, layout="xlnet", character_coverage=1.0),
    "big_bird": SentencePiece(400, layout="big-bird", character_coverage=1.0),
}
SPECIAL = ["[MASK]", "<mask>", "[CLS]", "</s>", "<pad>", "[UNK]", "[mask]", "<s>"]
PIECES = [
    *(
        "the",
        "Model",
        "NAÏVE",
        "é",
        "e\u0301",
        "Straße",
        "東京",
        "に",
        "猫",
        "한국",
        "привет",
        "🐈",
        "👩‍👧",
        "ﬁ",
        "①",
        "½",
    ),
    *(
        "1,000",
        "2,",
        ",",
        ".",
        "``",
        "''",
        "don't",
        "…",
        "-",
        "_",
        "(",
        "\t",
        "\n",
        "\u00a0",
        "\u3000",
        "\u200b",
        "\x07",
    ),
]


def corpus():
    """Words of syllables, and a few with what those lack."""
    draw = random.Random(1)
    syllables = [a + b + c for a in ("", *"bdfgklmnprst") for b in "aeiou" for c in ("", "n", "st", "r")]
    others = [
        "the",
        "model",
        "reads",
        "naïve",
        "Über",
        "Straße",
        "東京",
        "日本語",
        "1,000",
        "café",
        "привет",
        "한국",
        "½",
    ]
    words = [*others, *("".join(draw.choices(syllables, k=draw.randrange(1, 4))) for _ in range(400))]
    return (" ".join(draw.choices(words, k=12)).capitalize() + "." for _ in range(800))


def texts():
    """Words, signs and blanks of many kinds, some of them special tokens, with and without blanks between."""
    draw = random.Random(0)
    blanks = ["", " ", "  "]
    for number in range(600):
        pieces = PIECES + SPECIAL * (number % 2)
        yield "".join(draw.choice(pieces) + draw.choice(blanks) for _ in range(draw.randrange(12)))
    # Without the combining marks, where libraries differ in what they compose.
    ranges = ((1, 0x80), (0xA0, 0x250), (0x400, 0x480), (0x3041, 0x3097), (0x4E00, 0x9FA6), (0x1F300, 0x1FA00))
    for number in range(600):
        low, high = ranges[number % len(ranges)]
        yield "".join(chr(draw.randrange(low, high)) for _ in range(draw.randrange(1, 20)))


@pytest.fixture(scope="module")
def tokenizers():
    return {family: make_tokenizer(config, corpus) for family, config in CONFIGS.items()}


@pytest.fixture(params=CONFIGS)
def family(request):
    return request.param


@pytest.fixture
def tokenizer(tokenizers, family):
    return tokenizers[family]


@pytest.fixture
def folder(tokenizer, family, tmp_path):
    return written(tmp_path, tokenizer, family)


@pytest.fixture(scope="module")
def auto(transformers):
    return transformers.AutoTokenizer.from_pretrained


def written(folder, tokenizer, family):
    folder.mkdir(exist_ok=True)
    write_tokenizer(folder, tokenizer, family)
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return folder


def read(folder):
    return read_tokenizer(folder, json.loads((folder / "config.json").read_text()))


def assert_same_ids(ours, theirs, some=None):
    some = list(texts() if some is None else some)
    if isinstance(ours, AlbertTokenizer | XLNetTokenizer):
        # They take Korean letters apart; SentencePiece puts them together again, Transformers does not.
        some = [text for text in some if "한" not in text]
    if isinstance(ours, BigBirdTokenizer):
        # Theirs leaves out the normalization that the model describes, which SentencePiece itself does.
        plain = SentencePieceProcessor(model_proto=ours.model)
        unmarked = [text for text in some if not any(token in text for token in (*SPECIAL, "[SEP]"))]
        assert [ours.encode(text) for text in unmarked] == plain.encode(unmarked)
        some = [text for text in some if re.fullmatch(r"([\w,.()-]+ )*[\w,.()-]+", text) and text.isascii()]
        assert len(some) > 5
    expected = theirs(some, add_special_tokens=False)["input_ids"]
    different = [text for text, ids in zip(some, expected, strict=True) if ours.encode(text) != ids]
    assert different == []


def assert_same(ours, theirs):
    assert_same_ids(ours, theirs)
    v = ours.vocabulary
    ids = theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id
    assert ids == (v.pad_id, v.unk_id, v.cls_id, v.sep_id, v.mask_id)
    assert len(theirs) == v.size
    assert theirs.mask_token == ours.mask_token
    pair = ("the model", "1,000")
    for texts_of_row in (pair[:1], pair):
        parts = [np.array(ours.encode(text)) for text in texts_of_row]
        expected = SpecialIds.of(v).join(SpecialIds.of(v).count(len(parts)) + sum(map(len, parts)), *parts)
        assert theirs(*texts_of_row)["input_ids"] == expected.tolist()


def test_what_is_written_reads_the_same(folder, tokenizer):
    again = read(folder)
    assert type(again) is type(tokenizer)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.vocabulary == tokenizer.vocabulary


def test_transformers_gives_the_same_ids(folder, tokenizer, auto):
    assert_same(tokenizer, auto(folder))


def test_what_transformers_saves_gives_the_same_ids(folder, tokenizer, family, auto, tmp_path):
    """Its tokenizer.json, whatever its model, and the same after our export."""
    theirs = auto(folder)
    saved = tmp_path / "saved"
    theirs.save_pretrained(saved)
    (saved / "config.json").write_text((folder / "config.json").read_text())
    assert (saved / "tokenizer.json").exists()
    ours = read(saved)
    assert isinstance(ours, SubwordTokenizer)
    assert_same(ours, theirs)
    exported = written(tmp_path / "exported", ours, family)
    assert read(exported).fingerprint == ours.fingerprint
    assert_same(ours, auto(exported))


def test_the_class_and_the_inputs_are_the_models(folder, family, auto):
    classes = {"bert": "BertTokenizer", "electra": "BertTokenizer", "distilbert": "DistilBertTokenizer"}
    classes |= {
        "roberta": "RobertaTokenizer",
        "albert": "AlbertTokenizer",
        "xlm-roberta": "XLMRobertaTokenizer",
        "xlnet": "XLNetTokenizer",
        "big_bird": "BigBirdTokenizer",
    }
    described = json.loads((folder / "tokenizer_config.json").read_text())
    assert described["tokenizer_class"] == classes[family]
    theirs = auto(folder)
    assert type(theirs).__name__ == classes[family]
    assert ("token_type_ids" in theirs("a")) == (family in ("bert", "electra"))


@pytest.mark.parametrize("name", ["bert", "distilbert", "roberta"])
def test_the_files_of_older_programs(tokenizers, name, auto, tmp_path):
    """Without tokenizer.json: vocab.txt, or vocab.json and merges.txt."""
    folder = written(tmp_path, tokenizers[name], name)
    (folder / "tokenizer.json").unlink()
    ours = read(folder)
    assert ours.fingerprint == tokenizers[name].fingerprint
    assert_same(ours, auto(folder))


@pytest.mark.parametrize("described", [{}, {"do_lower_case": False}, {"strip_accents": False}])
def test_a_vocabulary_without_much_of_a_config(tokenizers, described, auto, tmp_path):
    folder = written(tmp_path, tokenizers["distilbert"], "bert")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    assert_same(read(folder), auto(folder))


@pytest.mark.parametrize("options", [{}, {"do_lower_case": False}, {"keep_accents": True}])
def test_albert_reads_how_to_normalize(tokenizers, options, auto, tmp_path):
    folder = written(tmp_path, tokenizers["albert"], "albert")
    described = json.loads((folder / "tokenizer_config.json").read_text()) | options
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    ours = read(folder)
    assert isinstance(ours, AlbertTokenizer)
    assert_same_ids(ours, auto(folder), ["Naïve ÜBER", "the MODEL reads", "(Óne) naïve"])
    assert (ours.fingerprint == tokenizers["albert"].fingerprint) == (not options)


def test_pipelines_of_their_own_stay_as_they_are(tokenizers, auto, tmp_path):
    """A class that builds its own pipeline would lose what this one does."""
    bert = tokenizers["bert"]
    normalizer = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, bert.description["normalizer"]]}
    changes = [
        {"normalizer": normalizer},
        {"model": {**bert.description["model"], "max_input_chars_per_word": 5}},
        {"pre_tokenizer": {"type": "WhitespaceSplit"}},
    ]
    for number, change in enumerate(changes):
        ours = SubwordTokenizer({**bert.description, **change}, bert.special)
        folder = written(tmp_path / str(number), ours, "bert")
        assert read(folder).fingerprint == ours.fingerprint
        assert_same(ours, auto(folder))
        assert [ours.encode(text) for text in texts()] != [bert.encode(text) for text in texts()]


def test_t5_with_a_tokenizer_json_alone(auto, tmp_path):
    model = make_tokenizer(SentencePiece(400, extra_ids=20), corpus)
    folder = written(tmp_path / "model", model, "t5")
    assert isinstance(read(folder), SentencePieceTokenizer)
    assert read(folder).fingerprint == model.fingerprint
    theirs = auto(folder)
    theirs.save_pretrained(folder)
    assert read(folder).fingerprint == model.fingerprint
    (folder / "spiece.model").unlink()
    ours = read(folder)
    v = ours.vocabulary
    assert (v.pad_id, v.eos_id, v.unk_id, v.cls_id, v.sep_id, v.mask_id) == (0, 1, 2, None, None, None)
    assert (v.size, v.first_sentinel_id, v.num_sentinels) == (420, 419, 20)
    assert v == model.vocabulary
    some = ["the model reads", "the<extra_id_0> reads<extra_id_19>", "naïve 東京 1,000"]
    assert_same_ids(ours, theirs, some)
    assert [ours.encode(text) for text in some] == [model.encode(text) for text in some]
    exported = written(tmp_path / "exported", ours, "t5")
    assert read(exported).fingerprint == ours.fingerprint
    assert_same_ids(ours, auto(exported), some)


def test_folders_without_a_tokenizer(family, tmp_path):
    assert read_tokenizer(tmp_path, {"model_type": family}) is None
