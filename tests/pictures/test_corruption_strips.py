"""What became of each token."""

import numpy as np

from t5x_lite.data import Vocabulary
from t5x_lite.pictures.corruption import strips

T5 = Vocabulary(100, first_sentinel_id=99, num_sentinels=10)
BERT = Vocabulary(50, pad_id=0, unk_id=2, cls_id=3, sep_id=4, eos_id=4, mask_id=5)


def shown(vocabulary, raw, **features):
    features = {name: np.array(value) for name, value in features.items()}
    return {strip.name: (strip.ids.tolist(), strip.roles) for strip in strips(vocabulary, np.array(raw), features)}


def test_spans_are_found_where_the_targets_spell_them():
    """Though their tokens stand elsewhere too."""
    found = shown(T5, [10, 11, 10, 11, 12], inputs=[10, 11, 99, 12, 1], targets=[99, 10, 11, 98, 1])
    hidden = ["", "", "hidden", "hidden", ""]
    assert found["text"] == ([10, 11, 10, 11, 12], hidden)
    assert found["model reads"] == ([10, 11, 99, 12, 1], ["", "", "hidden", "", ""])
    assert found["is asked for"][1] == ["hidden", "", "", "hidden", ""]


def test_sentinels_whose_spans_are_not_what_is_gone():
    found = shown(T5, [10, 11, 13, 12], inputs=[10, 99, 12, 1], targets=[99, 7, 1])
    assert found["text"][1] == ["", "hidden", "hidden", ""]
    assert found["model reads"][1] == ["", "hidden", "", ""]


def test_single_tokens_are_hidden_replaced_or_kept():
    found = shown(
        BERT,
        [3, 10, 11, 12, 13, 4],
        inputs=[3, 5, 11, 30, 13, 4],
        positions=[1, 3, 4, 0],
        targets=[10, 12, 13, 0],
    )
    roles = ["", "hidden", "", "random", "kept", ""]
    assert found == {"text": ([3, 10, 11, 12, 13, 4], roles), "model reads": ([3, 5, 11, 30, 13, 4], roles)}


def test_what_a_generator_fills_in_is_another_token_or_the_same():
    features = {"inputs": [3, 5, 11, 5, 4], "positions": [1, 3], "targets": [10, 12]}
    found = shown(BERT, [3, 10, 11, 12, 4], **features, filled=[3, 10, 11, 30, 4])
    assert list(found) == ["text", "generator", "discriminator"]
    assert found["discriminator"] == ([3, 10, 11, 30, 4], ["", "kept", "", "random", ""])


def test_moved_tokens_are_neither_hidden_nor_new():
    found = shown(
        BERT, [3, 10, 11, 12, 20, 21, 4], inputs=[3, 20, 21, 10, 5, 40, 4], targets=[3, 10, 11, 12, 20, 21, 4]
    )
    assert found["text"][1] == ["", "moved", "hidden", "hidden", "", "", ""]
    assert found["model reads"][1] == ["", "", "", "moved", "hidden", "random", ""]


def test_where_nothing_is_changed_the_text_stands_once():
    found = shown(T5, [10, 11, 12, 13], inputs=[10, 11, 12], targets=[11, 12, 13])
    assert list(found) == ["model reads", "is asked for"]
    assert list(shown(BERT, [3, 10, 4], inputs=[3, 10, 4], label=1)) == ["model reads"]


def test_a_prefix_ends_where_the_text_is_asked_for():
    found = shown(T5, [10, 11, 12, 13], inputs=[10, 1, 0, 0], targets=[11, 12, 13, 1])
    assert found["text"][1] == ["", "hidden", "hidden", "hidden"]
    assert found["model reads"][1] == [""] * 4
