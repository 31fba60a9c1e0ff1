"""Heat maps of attention."""

import numpy as np

from t5x_lite.pictures import draw_attention, draw_attention_heads, draw_attention_layers


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_one_head_has_its_tokens():
    weights = np.random.default_rng(0).random((3, 2))
    picture = draw_attention(weights, ["a", "b$", "c$d$"], ["x", "averyveryveryverylongword"], "head")
    axes = picture.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), weights)
    assert axes.images[0].get_clim() == (0.0, 1.0), "pictures of several heads compare"
    assert labels(axes.yaxis) == ["a", "b$", "c$d$"]
    assert labels(axes.xaxis) == ["x", "averyveryveryvery…"]
    picture.png()  # two dollars are no formula


def test_of_long_texts_some_tokens_are_named():
    tokens = [f"w{n}" for n in range(200)]
    axes = draw_attention(np.zeros((200, 200)), tokens, tokens).axes[0]
    named = labels(axes.xaxis)
    assert named == tokens[::4]
    assert axes.figure.get_size_inches().max() < 20


def test_heads_lie_in_rows_of_four():
    weights = np.random.default_rng(0).random((6, 3, 3))
    picture = draw_attention_heads(weights, "abc", "abc", [f"head {h}" for h in range(6)])
    drawn = [axes for axes in picture.axes if axes.images]
    assert [axes.get_title() for axes in drawn] == [f"head {h}" for h in range(6)]
    assert {round(axes.get_position().y0, 2) for axes in drawn[:4]}.isdisjoint(
        round(axes.get_position().y0, 2) for axes in drawn[4:]
    )
    assert len(picture.axes) == 8
    assert not any(axes.axison for axes in picture.axes[6:])


def test_all_layers_are_a_table():
    weights = np.random.default_rng(0).random((2, 3, 4, 5))
    picture = draw_attention_layers(weights, "title")
    np.testing.assert_array_equal([axes.images[0].get_array() for axes in picture.axes], weights.reshape(6, 4, 5))
