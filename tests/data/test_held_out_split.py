import pytest

from t5x_lite.data.splits import split_documents


def test_copies_of_a_document_stay_on_one_side(corpus):
    texts = corpus.texts[:200]
    repeated = [*texts, *texts[::3], *texts[:50]]
    split = split_documents(repeated, 0.1)
    held = [text for text in repeated if split.holds_out(text)]
    train = [text for text in repeated if not split.holds_out(text)]
    assert held and train and not set(held) & set(train)
    assert len(held) + len(train) == split.documents == len(repeated)
    share = sum(map(len, held)) / sum(map(len, repeated))
    assert 0.1 <= share < 0.12


def test_the_split_is_by_content_not_by_place(corpus):
    forward, backward = split_documents(corpus.texts, 0.1), split_documents(corpus.texts[::-1], 0.1)
    assert forward == backward


@pytest.mark.parametrize("texts", [["short", "much longer document" * 50], ["much longer document" * 50, "x"]])
@pytest.mark.parametrize("held_out", [0.001, 0.49])
def test_two_documents_give_one_to_each_side(texts, held_out):
    split = split_documents(texts, held_out)
    assert [split.holds_out(text) for text in texts] in ([True, False], [False, True])
