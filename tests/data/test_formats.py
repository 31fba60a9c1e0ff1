"""Ids are unique: from each one in a row follows its document, its sentence and its place."""

import bisect
import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from t5x_lite.data import (
    Pairs,
    Sentences,
    Stream,
    TextFiles,
    Vocabulary,
    WordPiece,
    make_tokenizer,
    pair_rows,
    split_sentences,
)
from t5x_lite.errors import InputError

SAMPLE = Path(__file__).parents[2].parent / "shared" / "data" / "text_sample_bert" / "sample_text.txt"
PAD, CLS, SEP, UNK, FIRST = 0, 1, 2, 3, 10
VOCABULARY = Vocabulary(size=1 << 20, pad_id=PAD, eos_id=SEP, unk_id=UNK, cls_id=CLS, sep_id=SEP)
SEEDS = [0, 1, 2]
FORMATS = [
    Stream(13),
    Sentences(20, across_documents=True),
    Sentences(20, across_documents=False),
    Sentences(4, across_documents=True),
    *(Pairs(length, unit, other) for length in (8, 33) for unit in ("segment", "sentence") for other in (False, True)),
]


@dataclass
class Corpus:
    """Documents of sentences, and where every id is from."""

    documents: list[list[np.ndarray]]

    def __post_init__(self):
        self.starts = [FIRST]
        self.document_of = []
        for number, document in enumerate(self.documents):
            for sentence in document:
                self.starts.append(self.starts[-1] + len(sentence))
                self.document_of.append(number)

    def sentence(self, token) -> int:
        """Number of the sentence in the corpus."""
        return bisect.bisect_right(self.starts, int(token)) - 1

    def document(self, token) -> int:
        return self.document_of[self.sentence(token)]

    def is_start(self, token) -> bool:
        return int(token) in self.starts

    def is_end(self, token) -> bool:
        return int(token) + 1 in self.starts


def make_corpus(lengths) -> Corpus:
    """Documents of sentences of these lengths."""
    ids = iter(range(FIRST, VOCABULARY.size))
    return Corpus([[np.array([next(ids) for _ in range(n)], np.int32) for n in document] for document in lengths])


def random_corpus(seed, documents=60) -> Corpus:
    """Most sentences are short, a few long, some empty; documents have none to a dozen."""
    random = np.random.default_rng(seed)

    def length():
        return int(random.choice([0, random.integers(1, 9), random.integers(9, 60)], p=[0.05, 0.8, 0.15]))

    return make_corpus([[length() for _ in range(random.integers(0, 13))] for _ in range(documents)])


def build(row_format, documents, calls=()):
    """All rows and the builder; rows are taken after the documents numbered in `calls` too."""
    builder, parts = row_format.start(VOCABULARY), []
    for number, document in enumerate(documents):
        if row_format.reads_sentences:
            builder.add(document)
        else:
            builder.add([np.concatenate([np.empty(0, np.int32), *document])])
        if number in calls:
            parts.append(builder.take())
    builder.finish()
    rows = np.concatenate([*parts, builder.take()])
    assert builder.rows == len(rows) and builder.documents == len(documents)
    return rows, builder


def text_of(ids) -> list[int]:
    return [int(i) for i in ids if i >= FIRST]


@pytest.mark.parametrize("row_format", FORMATS, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_do_not_depend_on_how_documents_are_spread_over_calls(row_format, seed, monkeypatch):
    monkeypatch.setattr(pair_rows, "_BLOCK_DOCUMENTS", 7)
    documents = random_corpus(seed).documents
    once, builder = build(row_format, documents)
    assert once.dtype == np.int32 and once.shape[1] == row_format.row_length and len(once) > 20
    for calls in (range(len(documents)), np.random.default_rng(seed).integers(0, len(documents), 8)):
        rows, again = build(row_format, documents, calls)
        np.testing.assert_array_equal(rows, once)
        assert (again.tokens, again.skipped) == (builder.tokens, builder.skipped)


def test_a_builder_that_is_given_nothing_has_nothing():
    for row_format in FORMATS:
        rows, builder = build(row_format, [])
        assert rows.shape == (0, row_format.row_length)
        assert (builder.tokens, builder.skipped) == (0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_is_all_documents_in_order(seed):
    corpus = random_corpus(seed)
    rows, builder = build(Stream(13), corpus.documents)
    expected = [i for document in corpus.documents for i in [*(i for s in document for i in s.tolist()), SEP]]
    assert rows.flatten().tolist() == expected[: len(expected) // 13 * 13]
    assert builder.tokens == len(expected)


def parse_sentences(row) -> np.ndarray:
    """What stands between [CLS] and the last [SEP] of a row that is padded at its end alone."""
    assert row[0] == CLS
    end = int(np.flatnonzero(row == SEP)[-1])
    assert (row[end + 1 :] == PAD).all() and not np.isin(row[1:end], [PAD, CLS]).any()
    return row[1:end]


@pytest.mark.parametrize("across_documents", [True, False])
@pytest.mark.parametrize("length", [4, 20, 128])
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_sentences(across_documents, length, seed):
    corpus, room = random_corpus(seed), length - 2
    rows, builder = build(Sentences(length, across_documents), corpus.documents)
    bodies = [parse_sentences(row) for row in rows]
    # No text is lost, and it stays in order.
    everything = [int(i) for document in corpus.documents for s in document for i in s]
    assert [i for body in bodies for i in text_of(body)] == everything
    assert builder.tokens == len(everything)
    assert builder.skipped == sum(not any(map(len, document)) for document in corpus.documents)
    for number, body in enumerate(bodies):
        begins_sentence, ends_sentence = corpus.is_start(body[0]), corpus.is_end(body[-1])
        # Sentences are whole, but those that are longer than a row.
        for token, whole in ((body[0], begins_sentence), (body[-1], ends_sentence)):
            sentence = corpus.sentence(token)
            assert whole or corpus.starts[sentence + 1] - corpus.starts[sentence] > room
        # A separator stands where a document ends inside of the row, and nowhere else.
        words = text_of(body)
        expected = [words[0]]
        for before, after in itertools.pairwise(words):
            expected += [SEP, after] if corpus.document(before) != corpus.document(after) else [after]
        assert body.tolist() == expected
        if not across_documents:
            assert len({corpus.document(word) for word in words}) == 1
        # The row is as full as whole sentences can make it.
        if number + 1 < len(bodies):
            following = text_of(bodies[number + 1])
            crosses = corpus.document(words[-1]) != corpus.document(following[0])
            if across_documents or not crosses:
                sentence = corpus.sentence(following[0])
                piece = min(corpus.starts[sentence + 1] - following[0], room)
                assert len(body) + crosses + piece > room


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
def test_pairs(unit, length, seed, monkeypatch):
    monkeypatch.setattr(pair_rows, "_BLOCK_DOCUMENTS", 16)
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
def test_another_document_changes_nothing_in_the_pairs(unit, monkeypatch):
    monkeypatch.setattr(pair_rows, "_BLOCK_DOCUMENTS", 16)
    documents = random_corpus(3).documents
    with_other, _ = build(Pairs(33, unit, with_other=True), documents)
    without, _ = build(Pairs(33, unit, with_other=False), documents)
    np.testing.assert_array_equal(with_other[:, :33], without)


def test_a_last_single_sentence_takes_the_one_before_it_along():
    corpus = make_corpus([[3, 2, 4]])
    rows, _ = build(Pairs(32, "sentence"), corpus.documents)
    segments = [(pair.first.tolist(), pair.second.tolist()) for pair in (parse_pair(row, 32) for row in rows)]
    first, second, third = (sentence.tolist() for sentence in corpus.documents[0])
    assert segments == [(first, second), (second, third)]


def test_a_document_of_one_sentence_is_only_another_one():
    corpus = make_corpus([[3, 2], [5], [0, 4, 0], [], [0]])
    rows, builder = build(Pairs(32, "segment", with_other=True), corpus.documents)
    (pair,) = (parse_pair(row, 32) for row in rows)
    assert corpus.document(pair.first[0]) == 0
    assert corpus.document(pair.other[0]) in (1, 2)
    assert builder.skipped == 4


def test_segments_fill_the_row_but_a_tenth_of_them():
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
def test_what_is_too_long_is_cut_as_bert_cuts_it(length):
    sizes = [(a, b) for a in range(1, 16) for b in range(1, 16)]
    rows, _ = build(Pairs(length, "sentence"), make_corpus(sizes).documents)
    pairs = [parse_pair(row, length) for row in rows]
    assert [(len(p.first), len(p.second)) for p in pairs] == [bert_lengths(a, b, length - 3) for a, b in sizes]


def test_ids_are_cut_at_both_ends_by_the_toss_of_a_coin():
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


def test_every_other_document_and_every_sentence_of_it_is_drawn_alike():
    corpus = make_corpus([[1] * 600, [2, 2], [3], [4, 4, 4]])
    rows, _ = build(Pairs(16, "sentence", with_other=True), corpus.documents)
    pairs = [parse_pair(row, 16) for row in rows]
    counts = Counter(corpus.sentence(p.other[0]) - 600 for p in pairs if corpus.document(p.first[0]) == 0)
    expected = {0: 1 / 6, 1: 1 / 6, 2: 1 / 3, 3: 1 / 9, 4: 1 / 9, 5: 1 / 9}
    assert set(counts) == set(expected)
    chi_square = sum((counts[i] - 300 * share) ** 2 / (300 * share) for i, share in expected.items())
    assert chi_square < 20.5  # 0.999 of the distribution with 5 degrees of freedom


@pytest.mark.parametrize("block", [2, 5, 1000])
def test_copies_of_a_document_are_no_other_document(block, monkeypatch):
    """Copies are cut into sentences alike or not, and stand in one block or in several."""
    monkeypatch.setattr(pair_rows, "_BLOCK_DOCUMENTS", block)
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


def test_copies_of_a_single_document_have_no_other():
    (document,) = make_corpus([[6, 6]]).documents
    rows, builder = build(Pairs(32, "segment", with_other=True), [document] * 5000)
    assert len(rows) == 0 and builder.skipped == 5000
    assert len(build(Pairs(32, "segment"), [document] * 5000)[0]) == 5000


def test_the_last_small_block_keeps_company_from_the_one_before(monkeypatch):
    monkeypatch.setattr(pair_rows, "_BLOCK_DOCUMENTS", 4)
    corpus = make_corpus([[3, 3]] * 9)
    rows, _ = build(Pairs(16, "segment", with_other=True), corpus.documents)
    *_, last = (parse_pair(row, 16) for row in rows)
    assert corpus.document(last.first[0]) == 8
    assert corpus.document(last.other[0]) in range(4, 8)


@pytest.mark.parametrize(("limit", "value"), [("_BLOCK_DOCUMENTS", 10), ("_BLOCK_IDS", 60)])
def test_rows_come_out_as_soon_as_their_block_is_complete(limit, value, monkeypatch):
    monkeypatch.setattr(pair_rows, limit, value)
    builder = Pairs(16, "segment", with_other=True).start(VOCABULARY)
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
    length, builder = 256, Pairs(256, "sentence", with_other=True).start(tokenizer.vocabulary)
    for text in source.documents():
        builder.add(tokenizer.encode_batch(split_sentences(text, "line")))
    builder.finish()
    lines = SAMPLE.read_text().split("\n")
    numbers = {tokenizer.decode(tokenizer.encode(line)): number for number, line in enumerate(lines) if line.strip()}
    document_of = np.cumsum([not line.strip() for line in lines])
    seen = set()
    for row in builder.take():
        middle, end = np.flatnonzero(row == tokenizer.vocabulary.sep_id)
        first, second, other = (numbers[tokenizer.decode(ids)] for ids in (row[:middle], row[middle:end], row[length:]))
        assert second == first + 1 and document_of[first] == document_of[second] != document_of[other]
        seen |= {first, second}
    assert seen == set(numbers.values())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stream(0), "length=0 .* choose 1"),
        (lambda: Sentences(3), "length=3 is too short for a sentence; choose 4"),
        (lambda: Pairs(7), "length=7 is too short for a pair; choose 8"),
        (lambda: Pairs(16, unit="paragraph"), "unit='paragraph' is unknown; choose one of segment, sentence"),
        (lambda: Pairs(16).start(Vocabulary(size=9)), r"no \[CLS\] and no \[SEP\] token; use WordPiece, ByteLevelBPE"),
        (
            lambda: Sentences(16).start(Vocabulary(size=9, cls_id=3)),
            r"no \[SEP\] token; .* layout='albert'",
        ),
    ],
)
def test_values_that_cannot_be(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_row_lengths():
    assert [row_format.row_length for row_format in (Stream(9), Sentences(9), Pairs(9))] == [9, 9, 9]
    assert Pairs(128, with_other=True).row_length == 128 + 124
