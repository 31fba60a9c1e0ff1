"""Passages of whole sentences, and the names and dates in them."""

import numpy as np
import pytest

from t5x_lite.data import Vocabulary, WordPiece, make_tokenizer
from t5x_lite.data.layouts.passages import Passages
from t5x_lite.data.layouts.salient_spans import salient_spans
from t5x_lite.errors import InputError

VOCABULARY = Vocabulary(100, pad_id=0)


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("On 3 March 1882 he met Irene Adler.", ["3 March 1882", "Irene Adler"]),
        ("It was March 3, 1882, or 1882-03-03, or the 1880s.", ["March 3, 1882", "1882-03-03", "1880s"]),
        ("He may march in May, they say.", []),
        ("In May 1914 the Bank of England's gold left London.", ["May 1914", "Bank of England", "London"]),
        ("Marriage is a great institution.", []),
        ("Mycroft Holmes and I went there.", ["Mycroft Holmes"]),
        ("The Hound of the Baskervilles barked.", ["Hound of the Baskervilles"]),
        ('"Watson!" cried Holmes.', ["Holmes"]),
        ("NASA and U2 came.", ["NASA", "U2"]),
        ("Émile went to Évreux with von Neumann.", ["Évreux", "Neumann"]),
        ("Room 221 has 12345 books.", []),
        ("", []),
    ],
)
def test_names_and_dates(sentence, found):
    assert [sentence[start:end] for start, end in salient_spans(sentence)] == found


def test_long_sentences_take_as_long_as_they_are_long():
    """A hundred thousand dates, or small words with capitals, in one sentence: minutes, each compared with all."""
    dates = salient_spans("3 March " * 100_000)
    assert len(dates) == 100_000
    assert salient_spans("The " * 100_000) == []


def made(documents, length=8):
    rows = Passages(length).start(VOCABULARY)
    for document in documents:
        rows.add([(np.arange(1, n + 1), np.zeros(n, int)) for n in document])
    return rows, rows.take()


def test_sentences_stay_whole_and_documents_apart():
    rows, taken = made([[3, 4, 2], [5], []])
    assert [row["sentences"].tolist() for row in taken] == [
        [1, 1, 1, 2, 2, 2, 2, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0, 0],
    ]
    assert (rows.documents, rows.skipped, rows.tokens, rows.padding) == (3, 1, 14, 10)


def test_a_sentence_longer_than_a_passage_is_cut():
    _, taken = made([[2, 19, 3]])
    assert [row["ids"].tolist() for row in taken] == [
        [1, 2, 0, 0, 0, 0, 0, 0],
        list(range(1, 9)),
        list(range(9, 17)),
        [17, 18, 19, 1, 2, 3, 0, 0],
    ]
    assert taken[-1]["sentences"].tolist() == [1, 1, 1, 2, 2, 2, 0, 0]


def test_spans_are_numbered_within_a_passage():
    rows = Passages(8).start(VOCABULARY)
    rows.add([(np.arange(1, 5), np.array([0, 7, 7, 9])), (np.arange(1, 4), np.array([0, 2, 0]))])
    assert rows.take()[0]["spans"].tolist() == [0, 1, 1, 2, 0, 3, 0, 0]


def test_the_tokens_of_names_are_found():
    texts = ["The man met Irene Adler in 1888. He left.", "Nobody came."]
    tokenizer = make_tokenizer(WordPiece(vocab_size=80), lambda: iter(texts))
    layout = Passages(40)
    rows = layout.start(tokenizer.vocabulary)
    for document in layout.tokenize(texts, tokenizer, "punctuation"):
        rows.add(document)
    first, second = rows.take()
    named = [tokenizer.decode(first["ids"][first["spans"] == number]) for number in (1, 2)]
    assert named == ["irene adler", "1888"] and first["spans"].max() == 2 and not second["spans"].any()
    assert first["sentences"].max() == 2


def test_a_length_without_room_is_refused():
    with pytest.raises(InputError, match="length=3"):
        Passages(3)
