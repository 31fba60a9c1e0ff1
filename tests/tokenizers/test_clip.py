"""CLIP's BPE, by the library that Hugging Face has it in, and what is wrong with files of merges."""

import gzip
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from t5x_lite.convert.tokenizers import read_tokenizer, write_tokenizer
from t5x_lite.data import ClipBPE, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import expected_vocabulary

MERGES = ["h e", "l l", "he ll", "hell o</w>", "w o", "r l", "wo rl", "worl d</w>", "Ã ¼", "c a", "ca t</w>", "1 2"]
SIZE = 512 + len(MERGES) + 2
TEXTS = [
    "Hello,   World!",
    "a photo of a CAT's müde\tcats in 2012",
    "hello<|endoftext|> world",
    "don't \u2603 日本 naïve e\u0301",
    "",
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "merges.txt.gz"
    path.write_bytes(gzip.compress("\n".join(["#version", *MERGES, ""]).encode()))
    return path


@pytest.fixture
def tokenizer(file):
    return make_tokenizer(ClipBPE(str(file), SIZE), iter)


def test_ids_are_bytes_bytes_that_end_words_and_merges(tokenizer):
    assert tokenizer.encode("Hello world") == [512 + 3, 512 + 7]
    assert tokenizer.encode("!") == [256]
    vocabulary = tokenizer.vocabulary
    assert (vocabulary.size, vocabulary.cls_id, vocabulary.eos_id, vocabulary.pad_id) == (
        SIZE,
        SIZE - 2,
        SIZE - 1,
        SIZE - 1,
    )
    assert tokenizer.decode(tokenizer.encode("Hello,   WORLD!")) == "hello , world !"
    assert tokenizer.decode(tokenizer.encode("müde")) == "müde"


def test_its_vocabulary_is_known_before_the_file_is_there(tokenizer):
    expected = expected_vocabulary(ClipBPE("absent", SIZE), 1000)
    assert expected == replace(tokenizer.vocabulary, continuations=expected.continuations)


def test_fewer_ids_take_the_first_merges(file):
    few = make_tokenizer(ClipBPE(str(file), 512 + 3 + 2), iter)
    assert few.encode("hello") == [512 + 2, few.encode("o")[0]]


def test_it_is_kept_as_a_whole(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    for text in TEXTS:
        assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == tokenizer.encode(text)


def test_folders_of_transformers_are_opened_and_written(tokenizer, transformers, tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps(tokenizer.description["model"]["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES, ""]))
    old = read_tokenizer(tmp_path, {"model_type": "clip"})
    theirs = transformers.CLIPTokenizer.from_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path / "new")
    new = read_tokenizer(tmp_path / "new", {"model_type": "clip"})
    for read in (old, new):
        assert read.vocabulary == tokenizer.vocabulary
        assert [read.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]
    (tmp_path / "ours").mkdir()
    write_tokenizer(tmp_path / "ours", tokenizer, "clip")
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert isinstance(opened, transformers.CLIPTokenizer)
    assert opened(TEXTS)["input_ids"] == theirs(TEXTS)["input_ids"]
    assert opened.bos_token_id == SIZE - 2
    assert opened.pad_token_id == SIZE - 1


def test_it_is_hugging_faces(tokenizer, transformers):
    ids = {tokenizer.piece(number): number for number in range(SIZE)}
    theirs = transformers.CLIPTokenizer(vocab=ids, merges=[tuple(merge.split()) for merge in MERGES])
    for text in TEXTS:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.encode(text) == expected, text
        if "<|" not in text:
            np.testing.assert_array_equal(tokenizer.encode_batch([text])[0], expected)
            assert tokenizer.decode(expected) == theirs.decode(expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8bdamaged", "is damaged"),
        (gzip.compress(b"\xff\xfe", mtime=0), "is damaged"),
        (b"#version\na b\n", "is not a list of 12 merges or more, two pieces a line"),
        (b"#version\n" + 20 * b"abc\n", "is not a list of 12 merges"),
        (
            gzip.compress("\n".join(["#version", *MERGES]).encode(), mtime=0)[:40],
            "is not a list of 12 merges|is damaged",
        ),
    ],
)
def test_other_files_are_refused(file, content, message):
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        make_tokenizer(ClipBPE(str(file), SIZE), iter)


def test_missing_files_and_small_vocabularies_are_refused(tmp_path):
    with pytest.raises(InputError, match="none"):
        make_tokenizer(ClipBPE(str(tmp_path / "none")), iter)
    with pytest.raises(InputError, match="vocab_size=513 has no room for 512 bytes .* choose 514 or more"):
        ClipBPE("merges.txt.gz", 513)
