import numpy as np
import pytest

from t5x_lite.data import Sentences, Vocabulary
from t5x_lite.data.layouts.text import NumberedSentences
from t5x_lite.errors import InputError

PAD, CLS, SEP = 0, 2, 3
VOCABULARY = Vocabulary(100, pad_id=PAD, eos_id=SEP, unk_id=4, cls_id=CLS, sep_id=SEP)


def documents(count):
    random = np.random.default_rng(0)
    return [
        [random.integers(5, 100, random.integers(1, 14)).astype(np.int32) for _ in range(random.integers(1, 9))]
        for _ in range(count)
    ]


def rows_of(layout, texts):
    builder = layout.start(VOCABULARY)
    for text in texts:
        builder.add(text)
    builder.finish()
    return builder.take(), builder


@pytest.mark.parametrize("across_documents", [False, True])
def test_the_rows_of_sentences_with_their_numbers_behind_them(across_documents):
    texts = documents(60)
    marked, builder = rows_of(NumberedSentences(12, across_documents=across_documents), texts)
    plain, plain_builder = rows_of(Sentences(12, across_documents=across_documents), texts)
    ids, numbers = (np.stack([row[name] for row in marked]) for name in ("ids", "sentences"))
    np.testing.assert_array_equal(ids, np.stack([row["ids"] for row in plain]))
    np.testing.assert_array_equal(numbers > 0, ~np.isin(ids, [PAD, CLS, SEP]))
    assert builder.tokens == plain_builder.tokens
    assert builder.padding == plain_builder.padding == (ids == PAD).sum() > 0

    # Read sentence by sentence, the rows give the text, in which no sentence is cut that fits a row.
    sentences = [
        row[number == n].tolist() for row, number in zip(ids, numbers, strict=True) for n in range(1, number.max() + 1)
    ]
    pieces = [text[start : start + 10].tolist() for doc in texts for text in doc for start in range(0, len(text), 10)]
    assert sentences == pieces


def test_columns():
    assert {name: column.shape for name, column in NumberedSentences(12).spec.items()} == {
        "ids": (12,),
        "sentences": (12,),
    }
    assert NumberedSentences(12).num_ids == 12
    assert not NumberedSentences(12).across_documents
    assert NumberedSentences(12).reads_sentences
    with pytest.raises(InputError, match="length=3 is too small"):
        NumberedSentences(3)
    with pytest.raises(InputError, match="no \\[CLS\\]"):
        NumberedSentences(12).start(Vocabulary(100))
