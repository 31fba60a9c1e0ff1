"""Streams and rows of sentences. Ids are unique: from each one in a row follows its document, sentence and position."""

import itertools

import numpy as np
import pytest

from t5x_lite.data import OrderedStream, Sentences, Stream, Vocabulary
from t5x_lite.data.layouts.text import OverlappingStream

PAD, CLS, SEP, FIRST = 0, 1, 2, 10  # as in tiny_corpora
SEEDS = [0, 1, 2]
VOCABULARY = Vocabulary(size=1 << 20, pad_id=PAD, eos_id=SEP)


def text_of(ids) -> list[int]:
    return [int(i) for i in ids if i >= FIRST]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_is_all_documents_in_order(seed, random_corpus, build):
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
def test_rows_of_sentences(across_documents, length, seed, random_corpus, build):
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


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_in_order_share_the_id_between_them(seed, random_corpus, build):
    corpus = random_corpus(seed)
    rows, builder = build(OrderedStream(13), corpus.documents)
    expected = [i for document in corpus.documents for i in [*(i for s in document for i in s.tolist()), SEP]]
    assert len(rows) == (len(expected) - 1) // 12
    assert [i for row in rows for i in row[:-1].tolist()] + [rows[-1][-1]] == expected[: 12 * len(rows) + 1]
    assert builder.tokens == len(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_overlap_and_others_come_from_before(seed, random_corpus, build):
    corpus = random_corpus(seed)
    expected = [i for document in corpus.documents for i in [*(i for s in document for i in s.tolist()), SEP]]
    builder = OverlappingStream(13, step=5, with_other=True).start(VOCABULARY)
    rows = []
    for number, document in enumerate(corpus.documents):
        builder.add(document)
        rows += builder.take() if number % 3 == 0 else []
    rows += builder.take()
    assert len(rows) == (len(expected) - 13) // 5 + 1
    joined = ",".join(map(str, expected))
    for number, row in enumerate(rows):
        assert row["ids"].tolist() == expected[5 * number : 5 * number + 13]
        # Ids are unique, so the others stand somewhere; from the second window on, before the next one begins.
        found = ",".join(map(str, row["other"].tolist()))
        assert found in joined and len(row["other"]) == 8
        ends = joined[: joined.index(found)].count(",") + 8
        assert ends <= max(5 * number, 13)
