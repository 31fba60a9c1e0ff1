import numpy as np
import pytest

from t5x_lite.data import ByteLevelBPE, Bytes, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.pretrained.batches import Row, cut_rows, row_batches, token_rows, word_rows


def test_special_tokens_and_segments(wordpiece):
    cls, sep = wordpiece.vocabulary.cls_id, wordpiece.vocabulary.sep_id
    wall, fall = wordpiece.encode("the wall"), wordpiece.encode("fall")
    one, pair = token_rows(wordpiece, ["the wall", ("the wall", "fall")], 70)
    assert one == Row([cls, *wall, sep], [0] * (len(wall) + 2))
    assert pair.ids == [cls, *wall, sep, *fall, sep]
    assert pair.segments == [0] * (len(wall) + 2) + [1] * (len(fall) + 1)
    assert token_rows(wordpiece, ("the wall", "fall"), 70) == [pair], "a pair by itself is one text"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "texts=\\[\\] is empty; give one or more"),
        ("", "the text='' holds no token"),
        (["wall", ""], "texts\\[1\\]='' holds no token"),
        (["wall", 3], "texts\\[1\\]=3 is not a text"),
        (("a", "b", "c"), "is not a text; give a string or a pair"),
        (None, "texts=None is not a text"),
        (["wall", "wall " * 7], "texts\\[1\\] has 9 tokens, special ones included, and the model takes max_length=8"),
    ],
)
def test_what_is_no_text(wordpiece, texts, message):
    with pytest.raises(InputError, match=message):
        token_rows(wordpiece, texts, 8)


def test_a_tokenizer_without_special_tokens():
    with pytest.raises(InputError, match="no \\[CLS\\] or \\[SEP\\]"):
        token_rows(make_tokenizer(Bytes(), lambda: iter(())), ["wall"], 8)


def test_longer_texts_are_cut_where_that_is_asked_for(wordpiece):
    """Of a pair the longer text loses a token at a time; what fits stays."""
    cls, sep, wall = wordpiece.vocabulary.cls_id, wordpiece.vocabulary.sep_id, wordpiece.encode("wall")[0]
    texts = ["wall", "wall " * 7, ("wall wall", "wall " * 7), ("wall " * 7, "wall " * 7)]
    rows, num_cut = cut_rows(wordpiece, texts, 8)
    assert num_cut == 3
    assert [row.ids for row in rows] == [
        [cls, wall, sep],
        [cls, *[wall] * 6, sep],
        [cls, wall, wall, sep, *[wall] * 3, sep],
        [cls, *[wall] * 3, sep, *[wall] * 2, sep],
    ]
    assert cut_rows(wordpiece, texts[:1], 8) == (token_rows(wordpiece, texts[:1], 8), 0)


def test_words_know_their_first_pieces(wordpiece):
    """In the row of the running text, or in the next one where it is full; an invisible word is an unknown token."""
    sentence = ["the", "bottles", "walls", "fall"]
    (row, *others), (positions,) = word_rows(wordpiece, [sentence], 70)
    assert (row.ids, others) == (token_rows(wordpiece, [" ".join(sentence)], 70)[0].ids, [])
    pieces = [len(wordpiece.encode(word)) for word in sentence]
    assert pieces[2] > 1
    assert positions == [(0, 1 + sum(pieces[:number])) for number in range(4)]
    rows, positions = word_rows(wordpiece, [["wall"] * 5, ["fall", "\u200b", "wall"]], 5)
    assert positions == [[(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)], [(2, 1), (2, 2), (2, 3)]]
    assert rows[2].ids[2] == wordpiece.vocabulary.unk_id
    assert [len(row.ids) for row in rows] == [5, 4, 5]


def test_words_of_byte_level_bpe_begin_with_their_blanks():
    """As in running text, but for the first."""
    texts = [f"{number} green bottles hanging on the wall" for number in range(50)]
    tokenizer = make_tokenizer(ByteLevelBPE(vocab_size=300), lambda: iter(texts))
    sentence = ["green", "bottles", "on", "the", "wall"]
    (row,), (positions,) = word_rows(tokenizer, [sentence], 70)
    assert row.ids[1:-1] == tokenizer.encode(" ".join(sentence))
    for (_, position), word in zip(positions, sentence, strict=True):
        assert word.startswith(tokenizer.decode([row.ids[position]]).strip())


@pytest.mark.parametrize("sentences", [[], "the wall", ["the wall"], [["the", 3]], [[]]])
def test_what_is_no_list_of_words(wordpiece, sentences):
    with pytest.raises(InputError, match="not a list of words; give a list of lists of strings"):
        word_rows(wordpiece, sentences, 8)


def rows(lengths):
    return [Row([index + 2] * length) for index, length in enumerate(lengths)]


@pytest.mark.parametrize("limits", [{"most_rows": 24}, {"most_tokens": 2048}])
def test_every_row_comes_once_in_few_shapes(limits):
    lengths = np.random.default_rng(0).integers(0, 300, 200)
    seen, shapes = [], set()
    for indices, batch in row_batches(rows(lengths), pad_id=1, longest=None, **limits):
        shapes.add(batch.ids.shape)
        assert batch.ids.size <= limits.get("most_tokens", batch.ids.size)
        for index, ids, valid in zip(indices, batch.ids, batch.valid, strict=True):
            assert ids[valid].tolist() == [index + 2] * lengths[index]
            assert set(ids[~valid].tolist()) <= {1}
        assert set(indices[len(set(indices)) :]) <= {indices[0]}, "the first row fills a batch up"
        seen += set(indices)
    assert sorted(seen) == list(range(200))
    assert {length for _, length in shapes} <= {32, 64, 128, 256, 512}
    assert {count for count, _ in shapes} <= {1, 2, 4, 8, 16, limits.get("most_rows", 32)}


def test_rows_are_padded_to_no_more_than_there_is_room_for():
    batches = [batch for _, batch in row_batches(rows([40, 0]), pad_id=0, longest=50)]
    assert [batch.ids.shape for batch in batches] == [(1, 32), (1, 50)]
    ((_, batch),) = row_batches(rows([0]), pad_id=0, longest=0)
    assert batch.ids.shape == (1, 0)


def test_padding_inside_a_row_stays():
    ((_, batch),) = row_batches([Row([5, 0, 6], valid=[True, False, True])], pad_id=0, longest=None)
    assert batch.valid[0].astype(int).tolist()[:4] == [1, 0, 1, 0]


def test_no_rows_together():
    with pytest.raises(InputError, match="batch_size=0"):
        list(row_batches(rows([3]), pad_id=0, most_rows=0, longest=None))
