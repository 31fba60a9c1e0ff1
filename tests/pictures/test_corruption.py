"""Rows before and after, as pictures."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Bytes, WordPiece, make_tokenizer
from t5x_lite.data.stored_rows import stack
from t5x_lite.errors import InputError
from t5x_lite.models import ElectraConfig, ElectraPairConfig, GptConfig
from t5x_lite.objectives import CausalLanguageModel, ReplacedTokenDetection, SpanCorruption
from t5x_lite.pictures import draw_corruption
from t5x_lite.pictures.corruption import COLORS, rows_of_texts

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
    spelled = [text.get_text() for text in picture.axes[0].texts]
    assert spelled[0] == "row 0"
    assert {"text", "model reads", "is asked for"} <= set(spelled)
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
    boxes = [axes.get_position() for axes in picture.axes]
    assert all(0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1 for box in boxes), "nothing is cut"


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
