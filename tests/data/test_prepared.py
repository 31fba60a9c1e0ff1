"""Rows that `prepare` has made once, for runs that only read them."""

from dataclasses import replace

import numpy as np
import pytest

from t5x_lite.data import Bytes, Data, Mixture, Part, Stream, TextFiles, WordPiece
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import ByteTokenizer

ROWS = Stream(32)


@pytest.fixture
def text(corpus, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(corpus.texts))
    return path


@pytest.fixture
def data(text, tmp_path) -> Data:
    return Data(TextFiles((str(text),)), WordPiece(vocab_size=200), held_out=0.1, cache_dir=str(tmp_path / "cache"))


def test_the_source_is_not_read(data, text, tmp_path):
    made = data.prepare_in(tmp_path / "out", ROWS)
    text.unlink()
    opened = replace(data, prepared=str(tmp_path / "out")).prepare(ROWS)
    assert (opened.key, opened.tokenizer.fingerprint) == (made.key, made.tokenizer.fingerprint)
    np.testing.assert_array_equal(stack(opened.train[:])["ids"], stack(made.train[:])["ids"])
    assert not (tmp_path / "cache").exists()


def test_the_key_is_that_of_the_cache(data, tmp_path):
    """A run may go on with the one or the other."""
    assert data.prepare_in(tmp_path / "out", ROWS).key == data.prepare(ROWS).key


def test_what_is_held_out_is_the_same_where_it_is_read(data, tmp_path):
    made = data.prepare_in(tmp_path / "out", ROWS)
    opened = replace(data, prepared=str(tmp_path / "out")).prepare(ROWS)
    assert list(opened.held_out_documents()) == list(made.held_out_documents()) != []


def test_a_folder_has_the_rows_of_several_layouts_and_of_mixtures(data, tmp_path):
    mixture = Mixture((Part("all", data.source), Part("again", data.source)))
    variants = [(data, ROWS), (data, Stream(16)), (replace(data, source=mixture), ROWS)]
    made = [each.prepare_in(tmp_path / "out", layout) for each, layout in variants]
    for (each, layout), store in zip(variants, made, strict=True):
        opened = replace(each, prepared=str(tmp_path / "out")).prepare(layout)
        assert opened.key == store.key and len(opened.train) == len(store.train)
    assert len({store.key for store in made}) == 3


@pytest.mark.parametrize(
    "changed",
    [{"tokenizer": Bytes()}, {"held_out": 0.2}, {"source": TextFiles(("other.txt",))}, {"layout": Stream(64)}],
    ids=lambda changed: next(iter(changed)),
)
def test_other_data_is_refused(data, tmp_path, changed):
    data.prepare_in(tmp_path / "out", ROWS)
    layout = changed.pop("layout", ROWS)
    message = (
        r"data.prepared=.* has no rows of this data \(TextFiles.*\); write them with 't5x-lite prepare CONFIG --out"
    )
    with pytest.raises(InputError, match=message):
        replace(data, prepared=str(tmp_path / "out"), **changed).prepare(layout)


def test_another_tokenizer_is_refused(data, tmp_path):
    data.prepare_in(tmp_path / "out", ROWS)
    with pytest.raises(InputError, match="has another tokenizer than the model that this run begins with"):
        replace(data, prepared=str(tmp_path / "out")).prepare(ROWS, tokenizer=ByteTokenizer(0))


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("train*.rows", cut),
        ("train*.rows", lambda path: path.unlink()),
        ("store.json", flip),
        ("store.json", lambda path: path.unlink()),
        ("checksums.0.json", lambda path: path.unlink()),
        ("checksums.0.json", flip),
        ("tokenizer/*.json", flip),
    ],
)
def test_half_a_store_is_not_read(data, tmp_path, pattern, damage):
    made = data.prepare_in(tmp_path / "out", ROWS)
    damage(next(made.path.glob(pattern)))
    with pytest.raises(InputError, match="data.prepared=.* is damaged in .*; prepare it again"):
        replace(data, prepared=str(tmp_path / "out")).prepare(ROWS)
    # The same command mends it.
    assert data.prepare_in(tmp_path / "out", ROWS).key == made.key
    assert len(replace(data, prepared=str(tmp_path / "out")).prepare(ROWS).train) == len(made.train)


def test_a_damaged_record_is_one_sentence(data, tmp_path):
    data.prepare_in(tmp_path / "out", ROWS)
    (record,) = (tmp_path / "out" / "prepared").iterdir()
    for content in ("{", "[]", "{}", '{"stores": 3}', '{"stores": {"": "nowhere"}}', '{"stores": {"x": "nowhere"}}'):
        record.write_text(content)
        with pytest.raises(InputError):
            replace(data, prepared=str(tmp_path / "out")).prepare(ROWS)


def test_the_tokenizer_is_checked_before_there_are_rows(data, tmp_path):
    def refuse(tokenizer):
        raise InputError(f"{tokenizer.vocabulary.size} ids")

    for each in (data, replace(data, source=Mixture((Part("all", data.source),)))):
        with pytest.raises(InputError, match=r"\d+ ids"):
            each.prepare(ROWS, check_tokenizer=refuse)
        assert not (tmp_path / "cache" / "stores").exists()
