"""Examples of tasks in words, against the examples that the T5 paper prints in its appendix D."""

import pytest

from t5x_lite.data import LabelTemplate, NumberTemplate, TextTemplate
from t5x_lite.data.records.base import Record, fill
from t5x_lite.data.tasks.base import UnknownLabelError
from t5x_lite.errors import InputError


def example(**fields):
    return Record("a.jsonl:1", fields)


def test_templates_take_fields_and_braces():
    found = fill(
        "a {x/y} {{z}} {list/1} {number}", example(**{"x": {"y": " q "}, "list": ["u", "v"], "number": 3}), "source"
    )
    assert found == "a q {z} v 3"
    with pytest.raises(InputError, match=r"source='w' is missing in a.jsonl:1, which has 'x'"):
        fill("{w}", example(x="y"), "source")


@pytest.mark.parametrize(
    ("template", "problem"), [("no field", "names no field"), ("{}", "names no field"), ("{a", "is not a template")]
)
def test_a_template_that_is_none(template, problem):
    with pytest.raises(InputError, match=f"source=.* {problem}"):
        LabelTemplate(template, labels=("a", "b"))


def test_labels_are_written_by_the_words_of_their_classes():
    prompt = LabelTemplate("x {text}", labels=("0", "1"), words=("no", "yes"), left_out=("-",))
    assert list(prompt.pairs(example(text="t", label=1))) == [("x t", "yes")]
    left_out = example(text="t", label="-")
    assert list(prompt.pairs(left_out)) == list(prompt.eval_examples(left_out)) == []
    assert prompt.answers == ("no", "yes")
    assert LabelTemplate("{text}", labels=("a", "b")).answers == ("a", "b")
    for label in ("2", None, "yes"):
        with pytest.raises(UnknownLabelError, match="does not know"):
            list(prompt.pairs(example(text="t", label=label)))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"labels": ("a",)}, "is one class"),
        ({"labels": ("a", "a")}, "names one of them twice"),
        ({"labels": ("a", "b"), "words": ("x",)}, "do not go with labels"),
        ({"labels": ("a", "b"), "words": ("x", "x")}, "do not go with labels"),
        ({"labels": ("a", "b"), "left_out": ("b",)}, "left_out=.* has 'b'"),
        ({"labels": ("a", "b"), "replacements": (("(", ""),)}, "is not a regular expression"),
    ],
)
def test_classes_that_do_not_fit_together(options, problem):
    with pytest.raises(InputError, match=problem):
        LabelTemplate("{text}", **options)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        ("3.25", "3.2"),
        (1.0, "1.0"),
        (0, "0.0"),
        ("4.75", "4.8"),
        ("2.3333", "2.4"),
        (1.5, "1.6"),
        (0.1, "0.0"),
        (-0.3, "-0.4"),
    ],
)
def test_numbers_are_written_as_the_nearest_fifth(number, written):
    """1.5, 0.1 and 1.7 lie between two, and the even multiple is taken, as by `tf.round` in T5's own code, also where
    the number comes as a float32."""
    prompt = NumberTemplate("stsb sentence1: {a} sentence2: {b}")
    found = example(a="A plane is taking off.", b="An air plane is taking off.", label=number)
    ((source, target),) = prompt.pairs(found)
    assert (source, target) == (
        "stsb sentence1: A plane is taking off. sentence2: An air plane is taking off.",
        written,
    )
    ((_, right, _),) = prompt.eval_examples(found)
    assert right == (str(number),)


def test_numbers_of_other_steps():
    assert [pair[1] for pair in NumberTemplate("{a}", step=0.25).pairs(example(a="x", label=1.3))] == ["1.25"]
    assert [pair[1] for pair in NumberTemplate("{a}", step=1.0).pairs(example(a="x", label=1.3))] == ["1"]
    for label in ("nan", "inf", "three", None):
        with pytest.raises(InputError, match=f"label='{label}' in a.jsonl:1 is not a number"):
            list(NumberTemplate("{a}").pairs(example(a="x", label=label)))


def test_replacements_act_on_what_is_read_in_their_order():
    prompt = TextTemplate("{a}", "{b}", replacements=(("<br>", " "), ("</?b>", "")))
    assert list(prompt.pairs(example(a="<b>Sent 1: </b>One.<br><b>Sent 2: </b>Two.", b="<b>"))) == [
        ("Sent 1: One. Sent 2: Two.", "<b>")
    ]


def test_a_group_is_a_template_too():
    prompt = LabelTemplate("{a}", labels=("x", "y"), group="{idx/paragraph}-{idx/question}")
    ((_, _, group),) = prompt.eval_examples(example(a="b", label="y", idx={"paragraph": 3, "question": 5}))
    assert group == "3-5"
