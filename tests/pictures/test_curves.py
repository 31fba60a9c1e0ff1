"""Learning curves."""

import numpy as np

from t5x_lite.pictures import Curve, draw_curves


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
