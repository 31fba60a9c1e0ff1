import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from t5x_lite.data import (
    ByteLevelBPE,
    Bytes,
    Data,
    Pairs,
    SentencePiece,
    Sentences,
    Stream,
    WordPiece,
    split_sentences,
    splits,
    stored_rows,
)
from t5x_lite.data.layouts import segment_pairs
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import ByteTokenizer

from ..tiny_corpora import is_held_out

ROOT = Path(__file__).parents[2]
LENGTH = 32
ROWS = Stream(LENGTH)


def prepare(source, config, layout, *, cache_dir, tokenizer=None, progress=None, **options):
    data = Data(source, config, cache_dir=str(cache_dir), **options)
    return data.prepare(layout, tokenizer=tokenizer, progress=progress)


def ids_of(rows) -> list[int]:
    return [int(i) for row in rows for i in row["ids"]]


def expected_ids(corpus, tokenizer, *, held_out, side) -> list[int]:
    """The documents of one side, one by one, an EOS after each, without the last partial row."""
    holds_out = is_held_out(corpus.texts, held_out)
    ids = []
    for text in corpus.texts:
        if holds_out(text) == (side == "held_out"):
            ids += [*tokenizer.encode(text), tokenizer.vocabulary.eos_id]
    return ids[: len(ids) // LENGTH * LENGTH]


@pytest.mark.parametrize(("chunk", "shard_bytes"), [(1, 1 << 20), (100, LENGTH * 2 * 7), (1 << 20, LENGTH * 2 * 7)])
def test_every_token_is_there_once_and_in_order(corpus, spiece, tmp_path, monkeypatch, chunk, shard_bytes):
    monkeypatch.setattr(splits, "_CHUNK_CHARACTERS", chunk)
    monkeypatch.setattr(stored_rows, "_FILE_BYTES", shard_bytes)
    small = replace(corpus, texts=corpus.texts[:120])
    made = prepare(small, SentencePiece(), ROWS, held_out=0.2, cache_dir=tmp_path, tokenizer=spiece)
    for side in ("train", "held_out"):
        assert ids_of(getattr(made, side)) == expected_ids(small, spiece, held_out=0.2, side=side)


def prepare_prose(prose, tokenizer, cache_dir, rows, **options):
    options = {"held_out": 0.3, "cache_dir": cache_dir, "tokenizer": tokenizer, **options}
    return prepare(prose, WordPiece(), rows, **options)


@pytest.mark.parametrize(
    ("rows", "chunk", "rule"),
    [
        (Sentences(24, True), 1, "punctuation"),
        (Sentences(24, True), 1 << 20, "line"),
        (Sentences(24, False), 500, "line"),
        (Pairs(24, "sentence"), 500, "punctuation"),
        (Pairs(24, "segment", True), 1, "line"),
        (Pairs(24, "segment", True), 500, "punctuation"),
    ],
    ids=str,
)
def test_each_side_is_made_of_its_own_documents_alone(prose, word_piece, tmp_path, monkeypatch, chunk, rows, rule):
    monkeypatch.setattr(splits, "_CHUNK_CHARACTERS", chunk)
    monkeypatch.setattr(segment_pairs, "_BLOCK_DOCUMENTS", 16)
    made = prepare_prose(prose, word_piece, tmp_path, rows, sentences=rule)
    holds_out = is_held_out(prose.texts, 0.3)
    for side in ("train", "held_out"):
        builder = rows.start(word_piece.vocabulary)
        for text in prose.texts:
            if holds_out(text) == (side == "held_out"):
                builder.add(word_piece.encode_batch(split_sentences(text, rule)))
        builder.finish()
        found, expected = stack(getattr(made, side)[:]), stack(builder.take())
        assert found.keys() == expected.keys()
        for name, column in expected.items():
            np.testing.assert_array_equal(found[name], column)
        summary = json.loads((made.path / "store.json").read_text())
        assert summary["splits"][side]["tokens"] == builder.tokens
        assert summary["splits"][side]["skipped_documents"] == builder.skipped


def test_sentences_keep_the_blank_before_them(prose, tmp_path):
    config = ByteLevelBPE(vocab_size=400)
    made = prepare(prose, config, Sentences(512, False), held_out=0.3, cache_dir=tmp_path)
    texts = {made.tokenizer.decode(row["ids"]) for side in (made.train, made.held_out) for row in side}
    assert texts == {" ".join(text.split()) for text in prose.texts}


def test_the_same_data_is_the_same_store_on_another_machine(corpus, tmp_path):
    config = SentencePiece(vocab_size=100, extra_ids=5)
    first, second = (prepare(corpus, config, ROWS, held_out=0.1, cache_dir=tmp_path / n) for n in "ab")
    assert first.key == second.key
    assert ids_of(first.train) == ids_of(second.train)
    assert ids_of(first.held_out) == ids_of(second.held_out)


def test_the_key_follows_everything_that_matters(corpus, tmp_path):
    def key(source=corpus, extra_ids=0, rows=ROWS, held_out=0.1, sentences="punctuation"):
        config = Bytes(extra_ids)
        return prepare(source, config, rows, held_out=held_out, cache_dir=tmp_path, sentences=sentences).key

    others = [
        key(source=replace(corpus, texts=corpus.texts[1:])),
        key(extra_ids=1),
        key(rows=Stream(16)),
        key(held_out=0.2),
    ]
    assert len({key(), *others}) == 5
    assert key() == key() == key(sentences="line"), "a stream reads no sentences"


def test_the_key_follows_every_field_of_a_format(prose, word_piece, tmp_path):
    formats = [
        Stream(16),
        *(Sentences(16), Sentences(20), Sentences(16, across_documents=False)),
        *(Pairs(16), Pairs(20), Pairs(16, "sentence"), Pairs(16, with_other=True)),
    ]
    made = [prepare_prose(prose, word_piece, tmp_path, rows) for rows in formats]
    assert [each.layout for each in made] == formats
    for each in made:
        shapes = {name: column.shape for name, column in each.layout.spec.items()}
        for rows in (each.train, each.held_out):
            assert {name: column.shape for name, column in rows[0].items()} == shapes
    made.append(prepare_prose(prose, word_piece, tmp_path, Pairs(16), sentences="line"))
    assert len({each.key for each in made}) == len(made)


def test_a_second_prepare_only_opens(corpus, tmp_path):
    config = SentencePiece(vocab_size=100)
    stages = []

    def run():
        return prepare(
            corpus, config, ROWS, held_out=0.1, cache_dir=tmp_path, progress=lambda *stage: stages.append(stage)
        )

    first = run()
    assert [name for name, _ in stages] == ["train tokenizer", "split documents", "tokenize"]
    assert stages[-1][1] == 1.0
    stages.clear()
    second = run()
    assert stages == []
    assert (second.path, ids_of(second.train)) == (first.path, ids_of(first.train))
    assert second.tokenizer.fingerprint == first.tokenizer.fingerprint


def test_a_given_tokenizer_is_used(corpus, tmp_path):
    made = prepare(corpus, SentencePiece(), ROWS, held_out=0.1, cache_dir=tmp_path, tokenizer=ByteTokenizer(0))
    assert made.tokenizer.vocabulary.size == 259
    assert not (tmp_path / "tokenizers").exists()


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (50, {"sentences": "word"}, "sentences='word'"),
        (50, {"layout": Pairs(16)}, r"the tokenizer has no \[CLS\] .* use WordPiece"),
        (50, {"held_out": 0.0}, "held_out=0.0"),
        (50, {"held_out": 0.5}, "held_out=0.5"),
        (["same"] * 9, {}, r"1 distinct document.*held_out=0.1.*document='line'"),
        ([], {}, "0 distinct document"),
        (["one", "two"], {}, r"has [45] tokens and row_length=32.*more text"),
        (50, {"layout": Stream(500)}, r"held_out part .* has \d+ tokens and row_length=500.*larger held_out"),
    ],
)
def test_bad_corpora_and_values(corpus, tmp_path, texts, options, message):
    options = {"layout": ROWS, "held_out": 0.1, **options}
    texts = corpus.texts[:texts] if isinstance(texts, int) else tuple(texts)
    with pytest.raises(InputError, match=message):
        prepare(replace(corpus, texts=texts), Bytes(), cache_dir=tmp_path, **options)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Pairs(24), r"train part .* has 2 documents, 2 of them of one sentence, .* documents of more sentences"),
        (Pairs(24, with_other=True), "needs two sentences of a document; .* data.sentences"),
    ],
)
def test_a_corpus_without_pairs(prose, word_piece, tmp_path, rows, message):
    texts = ("One sentence.", "Another one.", "And a third.", "Here is the last.")
    with pytest.raises(InputError, match=message):
        prepare_prose(replace(prose, texts=texts), word_piece, tmp_path, rows)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_pair_with_another_document_needs_two_on_each_side(prose, word_piece, tmp_path):
    few = replace(prose, texts=("One is here. Two is here.", "Three is here. Four is here."))
    prepare_prose(few, word_piece, tmp_path, Pairs(24))
    with pytest.raises(InputError, match="train part .* has 1 documents, 0 of them of .* two documents of different"):
        prepare_prose(few, word_piece, tmp_path, Pairs(24, with_other=True))


def test_data_says_where_the_cache_is(corpus, tmp_path, monkeypatch):
    data = Data(source=corpus, tokenizer=Bytes(), held_out=0.1)
    monkeypatch.delenv("T5X_LITE_CACHE", raising=False)
    assert data.cache_path == Path.home() / ".cache" / "t5x_lite"
    monkeypatch.setenv("T5X_LITE_CACHE", str(tmp_path / "variable"))
    assert data.prepare(ROWS).path.is_relative_to(tmp_path / "variable")
    assert replace(data, cache_dir=str(tmp_path / "field")).prepare(ROWS).path.is_relative_to(tmp_path / "field")


def test_the_summary_counts(corpus, tmp_path):
    made = prepare(corpus, Bytes(), ROWS, held_out=0.1, cache_dir=tmp_path)
    summary = json.loads((made.path / "store.json").read_text())
    splits = summary["splits"]
    assert [splits[name]["rows"] for name in ("train", "held_out")] == [len(made.train), len(made.held_out)]
    assert sum(found["tokens"] for found in splits.values()) == sum(len(text.encode()) + 1 for text in corpus.texts)
    assert sum(figures.documents for figures in made.figures.values()) == len(corpus.texts)
    assert [figures.padding for figures in made.figures.values()] == [0.0, 0.0]


@pytest.mark.parametrize("rows", [Sentences(24), Pairs(24), Pairs(24, with_other=True)], ids=str)
def test_the_share_of_padding(prose, word_piece, tmp_path, rows):
    made = prepare_prose(prose, word_piece, tmp_path, rows)
    for split, figures in made.figures.items():
        ids = np.concatenate(list(stack(getattr(made, split)[:]).values()), axis=1)
        assert figures.padding == pytest.approx((ids == word_piece.vocabulary.pad_id).mean())
        assert 0 < figures.padding < 0.6
        assert figures.rows == len(ids)


@pytest.mark.slow
def test_the_defaults_work(tmp_path):
    made = Data(cache_dir=str(tmp_path)).prepare(Stream(512))
    assert made.tokenizer.vocabulary.size == 8_100
    assert len(made.train) > 30 * len(made.held_out) > 0
    text = "Return a list of the words in the string"
    assert made.tokenizer.decode(made.tokenizer.encode(text)) == text
