import numpy as np
import pytest

from t5x_lite.data import Column, Pairs, Sentences, Stream, TextPairs, Vocabulary
from t5x_lite.data.layouts import segment_pairs
from t5x_lite.errors import InputError

PAD = 0  # as in tiny_corpora
SEEDS = [0, 1, 2]
FORMATS = [
    Stream(13),
    Sentences(20, across_documents=True),
    Sentences(20, across_documents=False),
    Sentences(4, across_documents=True),
    *(Pairs(length, unit, other) for length in (8, 33) for unit in ("segment", "sentence") for other in (False, True)),
    *(TextPairs(9, 60, packed=packed, too_long="skip") for packed in (True, False)),
]


@pytest.mark.parametrize("layout", FORMATS, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_do_not_depend_on_how_documents_are_spread_over_calls(layout, seed, monkeypatch, random_corpus, build):
    monkeypatch.setattr(segment_pairs, "_BLOCK_DOCUMENTS", 7)
    documents = random_corpus(seed).documents
    once, builder = build(layout, documents)
    assert (
        once.dtype == np.int32
        and once.shape[1] == sum(column.size for column in layout.spec.values())
        and len(once) > 15
    )
    for calls in (range(len(documents)), np.random.default_rng(seed).integers(0, len(documents), 8)):
        rows, again = build(layout, documents, calls)
        np.testing.assert_array_equal(rows, once)
        assert (again.tokens, again.skipped) == (builder.tokens, builder.skipped)
        assert again.padding == builder.padding == (once == PAD).sum()


def test_a_builder_that_is_given_nothing_has_nothing(build):
    for layout in FORMATS:
        rows, builder = build(layout, [])
        assert rows.shape == (0, sum(column.size for column in layout.spec.values()))
        assert (builder.tokens, builder.skipped, builder.padding) == (0, 0, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stream(0), "length=0 .* choose 1"),
        (lambda: Sentences(3), "length=3 is too small; choose 4"),
        (lambda: Pairs(7), "length=7 is too small; choose 8"),
        (lambda: Pairs(16, unit="paragraph"), "unit='paragraph' is unknown; choose segment or sentence"),
        (lambda: Pairs(16).start(Vocabulary(size=9)), r"no \[CLS\] and no \[SEP\] token; use WordPiece, ByteLevelBPE"),
        (
            lambda: Sentences(16).start(Vocabulary(size=9, cls_id=3)),
            r"no \[SEP\] token; .* layout='albert'",
        ),
        (lambda: TextPairs(1, 9), "length=1 is too small; choose 2"),
        (lambda: TextPairs(9, 1), "target_length=1 is too small; choose 2"),
        (lambda: TextPairs(9, 9, too_long="drop"), "too_long='drop' is unknown; choose error, skip or cut"),
        (
            lambda: TextPairs(9, 9).start(Vocabulary(size=9, pad_id=3, eos_id=3)),
            r"pads with its EOS \(id 3\), .* packed=False",
        ),
    ],
)
def test_values_that_cannot_be(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_columns():
    for layout in (Stream(9), Sentences(9), Pairs(9)):
        assert layout.spec == {"ids": Column((9,), is_ids=True)}
        assert layout.num_ids == 9
    assert {name: column.shape for name, column in Pairs(128, with_other=True).spec.items()} == {
        "ids": (128,),
        "other": (124,),
    }
    assert TextPairs(12, 7).num_ids == 19
