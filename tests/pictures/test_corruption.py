"""Rows before and after, as pictures."""

from dataclasses import replace
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Bytes, Vocabulary, WordPiece, make_tokenizer
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.models import ElectraConfig, ElectraPairConfig, GptConfig
from t5x_lite.objectives import (
    CausalLanguageModel,
    MaskedAutoencoding,
    MaskedLanguageModel,
    ReplacedTokenDetection,
    SpanCorruption,
)
from t5x_lite.pictures.corruption import COLORS, draw_corruption, rows_of_texts, strips

TEXTS = ["The list is copied, and the copy is returned, whatever is in it." for _ in range(3)]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(Bytes(extra_ids=10), lambda: iter(()))


def test_what_is_hidden_is_coloured(tokenizer):
    objective = SpanCorruption(input_length=30)
    picture = draw_corruption(objective, tokenizer, TEXTS, most_rows=2)
    assert len(picture.axes) == 2
    texts = [text for text in picture.axes[0].texts if text.get_bbox_patch() is not None]
    marked = [text.get_text() for text in texts if text.get_bbox_patch().get_facecolor()[:3] == rgb(COLORS["hidden"])]
    sentinels = [word for word in marked if word.startswith("<extra_id_")]
    words = [text.get_text() for text in picture.axes[0].texts]
    assert words[0] == "row 0"
    assert {"text", "model reads", "is asked for"} <= set(words)
    # Each sentinel stands in the inputs and in the targets, each hidden byte in the text alone.
    assert len(sentinels) == 2 * len(set(sentinels))
    assert len(marked) - len(sentinels) == objective.raw_length - (objective.input_length - 1 - len(set(sentinels)))
    picture.png()


def rgb(color):
    return tuple(int(color[n : n + 2], 16) / 255 for n in (1, 3, 5))


def test_masks_stand_beside_the_rows(tokenizer):
    model = GptConfig(vocab_size=300, embed_dim=6, num_heads=2, mlp_dim=5, num_layers=1, max_length=16)
    picture = draw_corruption(CausalLanguageModel(16), tokenizer, TEXTS, model=model, most_rows=2)
    masks = [axes for axes in picture.axes if axes.images]
    assert [axes.get_title() for axes in masks] == ["decoder may look"] * 2
    np.testing.assert_array_equal(masks[0].images[0].get_array(), np.tri(16, dtype=bool))
    assert picture.get_figwidth() == 8.0, "no wider than a notebook, which would shrink the text"
    boxes = [axes.get_position() for axes in picture.axes]
    assert all(0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1 for box in boxes), "nothing is cut"


SCRIPTS = [
    "日本語の文章です。 The list is copied 漢字, العربية देवनागरी हिन्दी में लिखा है 한국어 문장입니다" for _ in range(20)
]


@pytest.mark.parametrize("texts", [TEXTS, SCRIPTS, ["x" * 300 + " is long"] * 20])
def test_tokens_are_legible_and_neither_overlap_nor_leave_the_picture(texts):
    tokenizer = make_tokenizer(WordPiece(vocab_size=300), lambda: iter(texts))
    picture = draw_corruption(MaskedLanguageModel(64), tokenizer, texts * 3, most_rows=1)
    picture.draw_without_rendering()
    words = [text for text in picture.axes[0].texts if text.get_text().strip()]
    pixels = 800 / picture.get_figwidth() / 72  # of a point, in a notebook
    assert min(text.get_fontsize() for text in words) * pixels >= 10
    lines = {}
    for text in words:
        box = text.get_window_extent()
        lines.setdefault(round(text.get_position()[1], 3), []).append((box.x0, box.x1))
    assert len(lines) > 3
    for boxes in lines.values():
        boxes.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(boxes))
        assert boxes[-1][1] <= picture.bbox.x1


def test_the_generator_fills_in_what_is_hidden(make_params):
    tokenizer = make_tokenizer(WordPiece(vocab_size=60), lambda: iter(TEXTS))
    sizes = {"vocab_size": 60, "embed_dim": 6, "num_heads": 2, "mlp_dim": 5, "num_layers": 1, "token_embed_dim": 4}
    discriminator = ElectraConfig(**sizes, max_length=24, heads=("replaced_token",))
    pair = ElectraPairConfig(replace(discriminator, heads=("masked_lm",)), discriminator)
    ids = jnp.ones((1, 2), jnp.int32)
    params = make_params(pair.build(), 0, ids, ids)
    objective = ReplacedTokenDetection(24)
    picture = draw_corruption(objective, tokenizer, TEXTS, model=pair, params=params, most_rows=1)
    words = [text.get_text() for text in picture.axes[0].texts]
    before, _, filled = (words[words.index(name) + 1 :] for name in ("text", "generator", "discriminator"))
    assert "[MASK]" in words[words.index("generator") :]
    assert "[MASK]" not in before[: before.index("generator")] + filled
    assert len(filled) == before.index("generator")


def test_texts_become_the_rows_of_the_objective(tokenizer):
    objective = CausalLanguageModel(16).for_vocabulary(tokenizer.vocabulary)
    rows = stack(rows_of_texts(objective, tokenizer, TEXTS))["ids"]
    stream = [token for text in TEXTS for token in [*tokenizer.encode(text), 1]]
    assert rows.ravel().tolist() == stream[: rows.size]
    assert len(stream) - rows.size < rows.shape[1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["short"], "the texts make no row: "),
        ("a text", "rows='a text' are none; give a list of texts, or rows of a store"),
    ],
)
def test_texts_that_are_no_rows(tokenizer, rows, message):
    with pytest.raises(InputError, match=message):
        draw_corruption(CausalLanguageModel(64), tokenizer, rows)


T5 = Vocabulary(100, first_sentinel_id=99, num_sentinels=10)
BERT = Vocabulary(50, pad_id=0, unk_id=2, cls_id=3, sep_id=4, eos_id=4, mask_id=5)


def shown(vocabulary, raw, **features):
    features = {name: np.array(value) for name, value in features.items()}
    return {strip.name: (strip.ids.tolist(), strip.roles) for strip in strips(vocabulary, np.array(raw), features)}


def test_rows_without_text_are_refused():
    with pytest.raises(InputError, match="objective=MaskedAutoencoding reads no text"):
        draw_corruption(MaskedAutoencoding(), None, [{"image": np.zeros((256, 256, 3), np.uint8)}])


def test_spans_are_those_in_the_targets():
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
