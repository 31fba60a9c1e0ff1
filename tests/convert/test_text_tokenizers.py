"""Tokenizers of models that write text. Oracle: those that Transformers' AutoTokenizer makes of the same files."""

import json
import random

import pytest

from t5x_lite.convert.tokenizers import read_tokenizer, write_tokenizer
from t5x_lite.data import ByteLevelBPE, SentencePiece, load_tokenizer, make_tokenizer
from t5x_lite.tokenizers.config import SentencePieceTokenizer, saved_config
from t5x_lite.tokenizers.marian import MarianTokenizer
from t5x_lite.tokenizers.pipelines import lowercase_bpe_description
from t5x_lite.tokenizers.subword import SubwordTokenizer

ENGLISH = ["the", "model", "reads", "Über", "naïve", "row", "don't", "1,000", "(x)", "writing", "written", "東京"]
GERMAN = ["das", "Modell", "liest", "über", "Straße", "Zeile", "geschrieben", "1.000", "(x)", "schreiben"]
PIECES = [*ENGLISH, *GERMAN, "é", "🐈", "\t", "\n", "\u00a0", "…", ",", "``", "²", ">>deu<<"]
SPECIAL = ["<|endoftext|>", "<unk>", "</s>", "<pad>"]


def corpus(words):
    """The words among others of syllables, which differ from language to language."""
    draw = random.Random(words[0])
    syllables = [a + b + c for a in ("", *"bdfgklmnprst") for b in "aeiou" for c in ("", "n", "st", "r")]
    others = ["".join(draw.choices(syllables, k=draw.randrange(1, 4))) for _ in range(200)]
    return [" ".join(draw.choices([*words, *words, *others], k=12)).capitalize() + "." for _ in range(400)]


def texts():
    """Words, signs and blanks of many kinds, some of them special tokens, with and without blanks between."""
    draw = random.Random(0)
    for number in range(400):
        pieces = PIECES + SPECIAL * (number % 2)
        yield "".join(draw.choice(pieces) + draw.choice(["", " ", "  "]) for _ in range(draw.randrange(12)))


def published_gpt2():
    """A vocabulary as GPT-2's: bytes, merges and <|endoftext|>, and nothing to pad with."""
    trained = make_tokenizer(ByteLevelBPE(400, layout="gpt2"), lambda: iter(corpus(ENGLISH)))
    vocabulary = {token: i for token, i in trained.description["model"]["vocab"].items() if token != "<pad>"}
    model = {**trained.description["model"], "vocab": vocabulary | {"<|endoftext|>": len(vocabulary) - 1}}
    added = {**trained.description["added_tokens"][-1], "id": len(vocabulary) - 1}
    special = dict.fromkeys(("pad_token", "eos_token", "unk_token"), "<|endoftext|>")
    return SubwordTokenizer({**trained.description, "model": model, "added_tokens": [added]}, special)


def published_gpt():
    """A vocabulary as the first GPT's: pieces of lower-case words, and <unk> for all else."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    library = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    library.train_from_iterator(corpus(ENGLISH), trainer)
    model = json.loads(library.to_str())["model"]
    special = dict.fromkeys(("pad_token", "eos_token", "unk_token"), "<unk>")
    return SubwordTokenizer(lowercase_bpe_description(model["vocab"], model["merges"], special), special)


def published_marian():
    """Two models over one vocabulary, which lacks some of their pieces."""
    models = [
        make_tokenizer(SentencePiece(200, character_coverage=1.0), lambda words=words: iter(corpus(words))).model
        for words in (ENGLISH, GERMAN)
    ]
    opened = [SentencePieceTokenizer(model, 0) for model in models]
    both = [[one.piece(token_id) for token_id in range(one.vocabulary.size)] for one in opened]
    pieces = [piece for piece in dict.fromkeys(both[0] + both[1]) if piece[0] != "<"]
    random.Random(2).shuffle(pieces)
    names = ["</s>", "<unk>", ">>deu<<", *pieces[7:], "<pad>"]
    return MarianTokenizer(*models, {name: i for i, name in enumerate(names)})


TOKENIZERS = {
    "bart": lambda: make_tokenizer(ByteLevelBPE(400), lambda: iter(corpus(ENGLISH))),
    "gpt2": published_gpt2,
    "gpt2-padded": lambda: make_tokenizer(ByteLevelBPE(400, layout="gpt2"), lambda: iter(corpus(ENGLISH))),
    "openai-gpt": published_gpt,
    "marian": published_marian,
    "marian-t5": lambda: make_tokenizer(SentencePiece(200, extra_ids=0), lambda: iter(corpus(ENGLISH))),
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def named(request):
    return request.param, TOKENIZERS[request.param]()


@pytest.fixture
def family(named):
    return named[0].removesuffix("-padded").removesuffix("-t5")


@pytest.fixture
def tokenizer(named):
    return named[1]


@pytest.fixture(scope="module")
def auto(transformers):
    return transformers.AutoTokenizer.from_pretrained


@pytest.fixture
def folder(tokenizer, family, tmp_path):
    return written(tmp_path / "hf", tokenizer, family)


def written(folder, tokenizer, family):
    folder.mkdir()
    write_tokenizer(folder, tokenizer, family)
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return folder


def read(folder):
    return read_tokenizer(folder, json.loads((folder / "config.json").read_text()))


def assert_same_ids(ours, theirs, name="text"):
    some = list(texts())
    if isinstance(ours, SentencePieceTokenizer):
        # Of the special tokens, T5's text has the sentinels alone.
        some = [text for text in some if not any(token in text for token in SPECIAL)]
    expected = theirs(**{name: some}, add_special_tokens=False)["input_ids"]
    different = [text for text, ids in zip(some, expected, strict=True) if ours.encode(text) != ids]
    assert different == []


def test_what_is_written_reads_the_same(folder, tokenizer):
    again = read(folder)
    assert type(again) is type(tokenizer)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.vocabulary == tokenizer.vocabulary


def test_transformers_gives_the_same_ids(folder, tokenizer, auto):
    theirs = auto(folder)
    assert_same_ids(tokenizer, theirs)
    assert_same_ids(tokenizer.target_side, theirs, "text_target")
    vocabulary = tokenizer.vocabulary
    for role in ("pad", "eos", "unk"):
        assert getattr(theirs, f"{role}_token_id") in (getattr(vocabulary, f"{role}_id"), None)
    assert len(theirs) == vocabulary.size
    assert "token_type_ids" not in theirs("the")
    if vocabulary.has_padding:
        assert theirs.pad_token_id == vocabulary.pad_id
    else:
        assert theirs.pad_token is None


def test_transformers_gives_the_same_text(folder, tokenizer, auto):
    theirs = auto(folder)
    for text in ("the model reads", "naïve (x) row.", "1,000 don't", "written"):
        ids = tokenizer.encode(text)
        expected = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert tokenizer.decode(ids).strip() == expected.strip()


def test_what_transformers_saves_gives_the_same_ids(folder, tokenizer, family, auto, tmp_path):
    theirs = auto(folder)
    theirs.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_text((folder / "config.json").read_text())
    ours = read(tmp_path / "saved")
    assert_same_ids(ours, theirs)
    assert ours.vocabulary.pad_id == tokenizer.vocabulary.pad_id
    exported = written(tmp_path / "exported", ours, family)
    assert read(exported).fingerprint == ours.fingerprint
    assert_same_ids(ours, auto(exported))


def test_the_class_is_the_models(folder, named, auto):
    classes = {"bart": "RobertaTokenizer", "gpt2": "GPT2Tokenizer", "gpt2-padded": "GPT2Tokenizer"}
    classes |= {"openai-gpt": "OpenAIGPTTokenizer", "marian": "MarianTokenizer", "marian-t5": "T5Tokenizer"}
    described = json.loads((folder / "tokenizer_config.json").read_text())
    assert described["tokenizer_class"] == classes[named[0]]
    assert type(auto(folder)).__name__ == classes[named[0]]


@pytest.mark.parametrize("keeps_config", [True, False])
def test_the_files_of_older_programs(named, folder, tokenizer, keeps_config):
    """Without tokenizer.json: vocab.json and merges.txt, with or without a word about special tokens."""
    if named[0].startswith("marian") or (named[0] == "bart" and not keeps_config):
        pytest.skip("has other files, or does not state how blanks are read")
    (folder / "tokenizer.json").unlink()
    if not keeps_config:
        (folder / "tokenizer_config.json").unlink()
    again = read(folder)
    some = list(texts())
    assert [again.encode(text) for text in some] == [tokenizer.encode(text) for text in some]
    assert again.vocabulary == tokenizer.vocabulary


def test_a_run_keeps_it(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    for again in (load_tokenizer(tmp_path), make_tokenizer(saved_config(tokenizer, tmp_path), iter)):
        assert again.fingerprint == tokenizer.fingerprint
        assert again.target_side.fingerprint == tokenizer.target_side.fingerprint


def test_a_corpus_knows_no_special_tokens(tokenizer):
    ids = tokenizer.encode_batch(["a <|endoftext|> b", "a </s> b <pad>"])
    vocabulary = tokenizer.vocabulary
    special = {vocabulary.pad_id, vocabulary.eos_id} - {vocabulary.unk_id}
    assert not any(special & set(row.tolist()) for row in ids)
