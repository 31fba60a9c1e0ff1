"""Pairs of segments. Ids are unique: from each one in a row follows its document, sentence and position."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from t5x_lite.data import Pairs, TextFiles, Vocabulary, WordPiece, make_tokenizer, split_sentences
from t5x_lite.data.layouts import segment_pairs

SAMPLE = Path(__file__).parents[4] / "shared" / "data" / "text_sample_bert" / "sample_text.txt"
PAD, CLS, SEP, FIRST = 0, 1, 2, 10  # as in tiny_corpora
SEEDS = [0, 1, 2]


def text_of(ids) -> list[int]:
    return [int(i) for i in ids if i >= FIRST]


@dataclass
class Pair:
    first: np.ndarray
    second: np.ndarray
    other: np.ndarray


def parse_pair(row, length) -> Pair:
    """The segments of a row, its marks checked."""
    pair, other = row[:length], row[length:]
    assert pair[0] == CLS
    (middle, end) = np.flatnonzero(pair == SEP)
    assert (pair[end + 1 :] == PAD).all() and 1 < middle < end - 1
    if len(other):
        other = other[: int((other != PAD).sum())]
        assert (row[length + len(other) :] == PAD).all()
        assert 1 <= len(other) <= length - 3 - (middle - 1)
    found = Pair(pair[1:middle], pair[middle + 1 : end], other)
    for segment in (found.first, found.second, found.other):
        assert (segment >= FIRST).all() and (np.diff(segment) == 1).all()
    return found


def with_pairs(corpus) -> list[int]:
    """Numbers of the documents of two sentences or more."""
    return [n for n, document in enumerate(corpus.documents) if sum(len(s) > 0 for s in document) > 1]


@pytest.mark.parametrize("unit", ["segment", "sentence"])
@pytest.mark.parametrize("length", [8, 33, 512])
@pytest.mark.parametrize("seed", SEEDS)
def test_pairs(unit, length, seed, monkeypatch, random_corpus, build):
    monkeypatch.setattr(segment_pairs, "_BLOCK_DOCUMENTS", 16)
    corpus = random_corpus(seed)
    rows, builder = build(Pairs(length, unit, with_other=True), corpus.documents)
    pairs = [parse_pair(row, length) for row in rows]
    for pair in pairs:
        document = corpus.document(pair.first[0])
        # B follows A in the same document, in whole sentences as far as the two fit.
        assert corpus.document(pair.second[-1]) == document
        assert pair.first[-1] < pair.second[0]
        assert corpus.sentence(pair.first[-1]) < corpus.sentence(pair.second[0])
        if len(pair.first) + len(pair.second) < length - 3:
            assert pair.first[-1] + 1 == pair.second[0]
            assert corpus.is_start(pair.first[0]) and corpus.is_start(pair.second[0]) and corpus.is_end(pair.second[-1])
        # C is of one document, and of another one.
        assert corpus.document(pair.other[0]) == corpus.document(pair.other[-1]) != document
        if len(pair.first) + len(pair.other) < length - 3:
            assert corpus.is_start(pair.other[0]) and corpus.is_end(pair.other[-1])
        if unit == "sentence":
            for segment in (pair.first, pair.second, pair.other):
                assert corpus.sentence(segment[0]) == corpus.sentence(segment[-1])
    order = [corpus.document(pair.first[0]) for pair in pairs]
    assert sorted(set(order)) == with_pairs(corpus) and order == sorted(order)
    assert builder.skipped == len(corpus.documents) - len(with_pairs(corpus)) > 0
    if length == 512 and unit == "sentence":
        # Nothing had to be cut: every sentence of these documents is there.
        words = {i for pair in pairs for i in text_of([*pair.first, *pair.second])}
        assert words == {int(i) for n in with_pairs(corpus) for s in corpus.documents[n] for i in s}


@pytest.mark.parametrize("unit", ["segment", "sentence"])
def test_another_document_changes_nothing_in_the_pairs(unit, monkeypatch, random_corpus, build):
    monkeypatch.setattr(segment_pairs, "_BLOCK_DOCUMENTS", 16)
    documents = random_corpus(3).documents
    with_other, _ = build(Pairs(33, unit, with_other=True), documents)
    without, _ = build(Pairs(33, unit, with_other=False), documents)
    np.testing.assert_array_equal(with_other[:, :33], without)


def test_a_last_single_sentence_takes_the_one_before_it_along(make_corpus, build):
    corpus = make_corpus([[3, 2, 4]])
    rows, _ = build(Pairs(32, "sentence"), corpus.documents)
    segments = [(pair.first.tolist(), pair.second.tolist()) for pair in (parse_pair(row, 32) for row in rows)]
    first, second, third = (sentence.tolist() for sentence in corpus.documents[0])
    assert segments == [(first, second), (second, third)]


def test_a_document_of_one_sentence_is_only_another_one(make_corpus, build):
    corpus = make_corpus([[3, 2], [5], [0, 4, 0], [], [0]])
    rows, builder = build(Pairs(32, "segment", with_other=True), corpus.documents)
    (pair,) = (parse_pair(row, 32) for row in rows)
    assert corpus.document(pair.first[0]) == 0
    assert corpus.document(pair.other[0]) in (1, 2)
    assert builder.skipped == 4


def test_segments_fill_the_row_but_a_tenth_of_them(make_corpus, build):
    """A tenth of the rows aims at 2 to 125 ids, evenly; sentences have 5."""
    rows, _ = build(Pairs(128, "segment", with_other=True), make_corpus([[5] * 10_000] * 2).documents)
    pairs = [parse_pair(row, 128) for row in rows]
    filled = np.array([len(pair.first) + len(pair.second) for pair in pairs])
    others = np.array([len(pair.first) + len(pair.other) for pair in pairs])
    share = np.mean(filled < 125)
    # Of the short ones those that aim at 121 or more are filled, and all have two sentences at least.
    assert share == pytest.approx(0.1 * 119 / 124, abs=4 * np.sqrt(0.09 / len(pairs)))
    assert filled.min() == 10
    # C is as long as B, but where its document ends.
    assert np.mean(filled == others) > 0.99
    # The cut is at every sentence end alike.
    firsts = np.array([len(pair.first) for pair in pairs if len(pair.first) + len(pair.second) == 125])
    assert firsts.min() == 5 and firsts.max() == 120
    assert np.mean(firsts) == pytest.approx(62.5, abs=4 * 36 / np.sqrt(len(firsts)))


def bert_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """BERT's loop: as long as the two do not fit, an id goes from A if it is longer, else from B."""
    while first + second > room:
        first, second = (first - 1, second) if first > second else (first, second - 1)
    return first, second


@pytest.mark.parametrize("length", [8, 9, 12])
def test_what_is_too_long_is_cut_as_bert_cuts_it(length, make_corpus, build):
    sizes = [(a, b) for a in range(1, 16) for b in range(1, 16)]
    rows, _ = build(Pairs(length, "sentence"), make_corpus(sizes).documents)
    pairs = [parse_pair(row, length) for row in rows]
    assert [(len(p.first), len(p.second)) for p in pairs] == [bert_lengths(a, b, length - 3) for a, b in sizes]


def test_ids_are_cut_at_both_ends_by_the_toss_of_a_coin(make_corpus, build):
    size, length, documents = 40, 43, 2000
    corpus = make_corpus([[size, size]] * documents)
    rows, _ = build(Pairs(length, "sentence", with_other=True), corpus.documents)
    for segment in ("first", "second", "other"):
        ids = np.array([getattr(parse_pair(row, length), segment) for row in rows])
        assert ids.shape == (documents, 20)
        front = np.array([i - corpus.starts[corpus.sentence(i)] for i in ids[:, 0]])
        # 20 tosses: mean 10, standard deviation sqrt(5).
        assert front.mean() == pytest.approx(10, abs=4 * np.sqrt(5 / documents))
        assert front.std() == pytest.approx(np.sqrt(5), rel=0.1)


def test_every_other_document_and_every_sentence_of_it_is_drawn_alike(make_corpus, build):
    corpus = make_corpus([[1] * 600, [2, 2], [3], [4, 4, 4]])
    rows, _ = build(Pairs(16, "sentence", with_other=True), corpus.documents)
    pairs = [parse_pair(row, 16) for row in rows]
    counts = Counter(corpus.sentence(p.other[0]) - 600 for p in pairs if corpus.document(p.first[0]) == 0)
    expected = {0: 1 / 6, 1: 1 / 6, 2: 1 / 3, 3: 1 / 9, 4: 1 / 9, 5: 1 / 9}
    assert set(counts) == set(expected)
    chi_square = sum((counts[i] - 300 * share) ** 2 / (300 * share) for i, share in expected.items())
    assert chi_square < 20.5  # 0.999 of the distribution with 5 degrees of freedom


@pytest.mark.parametrize("block", [2, 5, 1000])
def test_copies_of_a_document_are_no_other_document(block, monkeypatch, make_corpus, build):
    """Copies are cut into sentences alike or not, and stand in one block or in several."""
    monkeypatch.setattr(segment_pairs, "_BLOCK_DOCUMENTS", block)
    corpus = make_corpus([[6, 6], [3, 3, 3], [4, 4]])
    copied, other, rare = corpus.documents
    differently = [np.concatenate(copied)[:3], np.concatenate(copied)[3:]]
    documents = [copied] * 20 + [other] + [differently, copied] * 10 + [other, rare] + [copied] * 9
    rows, builder = build(Pairs(32, "segment", with_other=True), documents)
    assert builder.skipped == 0
    np.testing.assert_array_equal(rows[:, :32], build(Pairs(32, "segment"), documents)[0])
    for row in rows:
        pair = parse_pair(row, 32)
        assert corpus.document(pair.first[0]) != corpus.document(pair.other[0])


def test_copies_of_a_single_document_have_no_other(make_corpus, build):
    (document,) = make_corpus([[6, 6]]).documents
    rows, builder = build(Pairs(32, "segment", with_other=True), [document] * 5000)
    assert len(rows) == 0 and builder.skipped == 5000
    assert len(build(Pairs(32, "segment"), [document] * 5000)[0]) == 5000


def test_the_last_small_block_keeps_company_from_the_one_before(monkeypatch, make_corpus, build):
    monkeypatch.setattr(segment_pairs, "_BLOCK_DOCUMENTS", 4)
    corpus = make_corpus([[3, 3]] * 9)
    rows, _ = build(Pairs(16, "segment", with_other=True), corpus.documents)
    *_, last = (parse_pair(row, 16) for row in rows)
    assert corpus.document(last.first[0]) == 8
    assert corpus.document(last.other[0]) in range(4, 8)


@pytest.mark.parametrize(("limit", "value"), [("_BLOCK_DOCUMENTS", 10), ("_BLOCK_IDS", 60)])
def test_rows_come_out_as_soon_as_their_block_is_complete(limit, value, monkeypatch, make_corpus):
    monkeypatch.setattr(segment_pairs, limit, value)
    builder = Pairs(16, "segment", with_other=True).start(
        Vocabulary(size=1 << 20, pad_id=PAD, eos_id=SEP, cls_id=CLS, sep_id=SEP)
    )
    ready = []
    for document in make_corpus([[3, 3]] * 30).documents:
        builder.add(document)
        ready.append(len(builder.take()))
    assert ready == [10 if number % 10 == 9 else 0 for number in range(30)]


def test_pairs_of_the_sample_of_bert():
    """The layout that BERT's own data had: a sentence a line, a blank line between documents."""
    if not SAMPLE.exists():
        pytest.skip("needs ../shared/data/text_sample_bert beside the checkout")
    source = TextFiles((str(SAMPLE),))
    tokenizer = make_tokenizer(WordPiece(vocab_size=600), source.documents)
    builder = Pairs(256, "sentence", with_other=True).start(tokenizer.vocabulary)
    for text in source.documents():
        builder.add(tokenizer.encode_batch(split_sentences(text, "line")))
    builder.finish()
    lines = SAMPLE.read_text().split("\n")
    numbers = {tokenizer.decode(tokenizer.encode(line)): number for number, line in enumerate(lines) if line.strip()}
    document_of = np.cumsum([not line.strip() for line in lines])
    seen = set()
    for columns in builder.take():
        row, stranger = columns["ids"], columns["other"]
        middle, end = np.flatnonzero(row == tokenizer.vocabulary.sep_id)
        first, second, other = (numbers[tokenizer.decode(ids)] for ids in (row[:middle], row[middle:end], stranger))
        assert second == first + 1 and document_of[first] == document_of[second] != document_of[other]
        seen |= {first, second}
    assert seen == set(numbers.values())
