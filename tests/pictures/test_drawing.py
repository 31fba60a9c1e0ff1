"""Pictures of arrays, as files and in notebooks."""

import subprocess
import sys
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.font_manager import fontManager
from matplotlib.text import Text

from t5x_lite.errors import InputError
from t5x_lite.files import check_output_path
from t5x_lite.layers.positions import RelativePositionBias, sinusoidal_positions
from t5x_lite.pictures.drawing import (
    Curve,
    Picture,
    RelativeBias,
    draw_attention,
    draw_attention_heads,
    draw_attention_layers,
    draw_curves,
    draw_positions,
    draw_relative_bias,
)

SIGNATURE = b"\x89PNG"


def test_a_picture_is_a_png_in_files_and_notebooks(tmp_path):
    picture = Picture(figsize=(1, 1))
    picture.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(SIGNATURE)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert picture._repr_png_().startswith(SIGNATURE)
    with pytest.raises(InputError, match="path=.*a.jpg is not the name of a picture; choose one that ends in .png"):
        picture.save(tmp_path / "a.jpg")
    with pytest.raises(InputError, match="lies in no folder; make the folder first"):
        picture.save(tmp_path / "absent" / "a.png")


def test_either_of_two_kinds():
    with pytest.raises(InputError, match="out=a.gif is not the name of a page or picture; .* ends in .html or .png"):
        check_output_path(Path("a.gif"), "out", (".html", ".png"))


@pytest.mark.slow
def test_matplotlib_is_loaded_by_those_who_draw():
    code = (
        "import sys, t5x_lite.pictures, t5x_lite.pretrained; print('matplotlib' in sys.modules);"
        "import t5x_lite.pictures.drawing; print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True", "False"]


def test_each_run_has_a_colour_and_each_kind_a_style():
    curves = [
        Curve("a", "train", [(1, 3.0), (2, 2.0), (3, 1.5)]),
        Curve("a", "held_out", [(2, 2.5), (3, None)]),
        Curve("b", "train", [(1, 4.0), (2, 3.0), (3, 2.0)]),
    ]
    axes = draw_curves(curves, xlabel="step", ylabel="loss", baselines={"guess": 3.5}).axes[0]
    train, held_out, other, guess = axes.lines
    np.testing.assert_array_equal(train.get_xydata(), [[1, 3.0], [2, 2.0], [3, 1.5]])
    assert np.isnan(held_out.get_ydata()[1]), "what was not finite leaves a gap"
    assert train.get_color() == held_out.get_color() != other.get_color()
    assert (held_out.get_marker(), train.get_marker()) == ("o", "None")
    assert list(guess.get_ydata()) == [3.5, 3.5]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "a, train",
        "a, held-out",
        "b, train",
        "guess",
    ]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss")


def test_one_run_needs_no_name_and_one_point_is_seen():
    axes = draw_curves([Curve("a", "train", [(1, 2.0)])], xlabel="step", ylabel="loss").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["train"]
    assert axes.lines[0].get_marker() == "."


def test_the_legend_of_many_runs_is_beside_them():
    curves = [Curve(f"run{n}", "train", [(1, 2.0), (2e6, 1.0)]) for n in range(9)]
    picture = draw_curves(curves, xlabel="tokens", ylabel="loss")
    assert picture.axes[0].get_legend() is None
    assert len(picture.legends[0].get_texts()) == 9
    picture.draw_without_rendering()
    assert "2 M" in [label.get_text() for label in picture.axes[0].get_xticklabels()]


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


def test_tables_and_how_alike_their_rows_are():
    table = sinusoidal_positions(10, 6)
    picture = draw_positions({"encoder": table, "decoder": table[:5]})
    vectors, likeness = (axes.images[0].get_array() for axes in picture.axes[:2])
    np.testing.assert_array_equal(vectors, table)
    np.testing.assert_allclose(np.diag(likeness), 1.0, atol=1e-6)
    # Of sinusoids the likeness depends on the distance alone.
    for distance in range(1, 10):
        np.testing.assert_allclose(np.ptp(np.diag(likeness, distance)), 0.0, atol=1e-5)
    assert picture.axes[0].get_title() == "encoder: vectors"


def test_the_bias_is_that_of_the_layer():
    random = np.random.default_rng(0)
    for bidirectional in (True, False):
        buckets = random.normal(size=(8, 3)).astype(np.float32)
        module = RelativePositionBias(3, bidirectional, num_buckets=8, max_distance=11)
        expected = np.asarray(module.apply({"params": {"bias": jnp.asarray(buckets)}}, 20, 20).dense(20, 20))[0]
        found = RelativeBias(buckets, bidirectional, 11).by_distance(19)
        assert found.shape == (3, 39 if bidirectional else 20)
        for query in range(20):
            for key in range(20 if bidirectional else query + 1):
                np.testing.assert_array_equal(found[:, 19 + key - query], expected[:, query, key])


def test_every_head_has_a_line():
    buckets = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    picture = draw_relative_bias({"decoder": RelativeBias(buckets, False, 16)})
    lines, grid = picture.axes[:2]
    assert len(lines.lines) == 3
    distances, values = lines.lines[1].get_data()
    assert (distances[0], distances[-1]) == (-18, 0)
    assert values[-1] == buckets[0, 1]
    assert grid.collections[0].get_array().shape == (3, 19)
    picture.png()


WORDS = ["日本", "العربية", "देवनागरी", "🤖", "\ue123", "ü"]


@pytest.mark.parametrize("installed", [True, False])
def test_texts_of_all_scripts_are_drawn_without_warnings(monkeypatch, caplog, installed):
    if not installed:  # any font but those that matplotlib comes with
        own = [font for font in fontManager.ttflist if font.name in ("DejaVu Sans", "DejaVu Sans Mono")]
        monkeypatch.setattr(fontManager, "ttflist", own)
    picture = draw_attention(np.eye(len(WORDS)), WORDS, WORDS, "runs/日本 (Bert)")
    picture.text(0, 0, "日本", family="monospace")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture.png()
    assert not caplog.records
    first, ascii_text = picture.axes[0].yaxis.get_ticklabels()[0], picture.axes[0].yaxis.label
    available = {font.name for font in fontManager.ttflist}
    assert set(first.get_fontfamily()) <= available | {"sans-serif"}
    assert {name for name in available if name.startswith("Noto Sans CJK JP")} <= set(first.get_fontfamily())
    assert picture.texts[0].get_fontfamily()[0] == "monospace"
    assert ascii_text.get_fontfamily() == ["sans-serif"], "what needs no other font keeps its own"


def test_titles_name_the_run_and_are_no_formulas():
    table, buckets = np.eye(4), np.zeros((8, 2), np.float32)
    title, weights = "runs/$a$_$b$ (T5)", np.zeros((2, 2, 3, 3))
    pictures = [
        draw_positions({"encoder": table}, title),
        draw_relative_bias({"decoder": RelativeBias(buckets, False, 16)}, title),
        draw_attention_layers(weights, title),
        draw_attention_heads(weights[0], "abc", "abc", ("head 0", "head 1"), title),
    ]
    titles = [picture.get_suptitle() for picture in pictures]
    curves = draw_curves([Curve("$x$", "train", [(1, 2.0)])], xlabel="step", ylabel="loss", title=title)
    one_head = draw_attention(weights[0, 0], "abc", "abc", title)
    titles += [picture.axes[0].get_title() for picture in (curves, one_head)]
    assert titles == [title] * 6
    for picture in (*pictures, curves, one_head):
        assert not any(text.get_parse_math() for text in picture.findobj(Text) if "$" in text.get_text())


def test_long_titles_are_broken_into_lines():
    picture = draw_attention_layers(np.zeros((1, 2, 3, 3)), "runs/a_long_name (Bert): self attention, layer 1")
    assert picture.get_suptitle() == "runs/a_long_name (Bert):\nself attention, layer 1"
