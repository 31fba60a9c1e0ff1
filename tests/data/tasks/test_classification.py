"""Texts with labels."""

import pytest

from t5x_lite.data.records.formats import TableFiles
from t5x_lite.data.tasks.classification import LabeledTexts
from t5x_lite.errors import InputError


@pytest.fixture
def table(tmp_path):
    """`table(*rows)`: examples with the columns a, b and label."""

    def write(*rows):
        path = tmp_path / "a.tsv"
        path.write_text("a\tb\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
        return TableFiles((str(path),))

    return write


def test_labels_are_numbers_of_classes_in_the_given_order(table):
    examples = table(("x", "y", "no"), ("z", "u", "-"), ("v", "w", "yes"))
    source = LabeledTexts(examples, ("a", "b"), labels=("yes", "no"), left_out=("-",))
    assert [(example.texts, example.label) for example in source.read()] == [(("x", "y"), 1.0), (("v", "w"), 0.0)]
    assert list(source.documents()) == ["x", "y", "v", "w"]


def test_numbers_are_read_as_they_are(table):
    source = LabeledTexts(table(("x", "y", "3.25"), ("z", "u", "-1")), ("b",))
    assert [(example.texts, example.label) for example in source.read()] == [(("y",), 3.25), (("u",), -1.0)]


def test_unknown_labels_are_counted_and_the_first_is_placed(table):
    examples = table(("x", "y", "no"), ("x", "y", "maybe"), ("x", "y", "-"), ("x", "y", "maybe"))
    with pytest.raises(InputError, match=r"'maybe' 2 times, '-' 1 times, the first in .*a.tsv:3; name them in labels"):
        list(LabeledTexts(examples, ("a",), labels=("yes", "no")).read())


@pytest.mark.parametrize("written", ["nan", "inf", "good", ""])
def test_what_is_no_number_is_refused(table, written):
    with pytest.raises(InputError, match=rf"label='{written}' in .*a.tsv:2 is not a number"):
        list(LabeledTexts(table(("x", "y", written)), ("a",)).read())


def test_columns_that_are_missing_are_named_beside_those_present(table):
    with pytest.raises(InputError, match=r"texts='c' is missing in .*a.tsv:2, which has 'a', 'b', 'label'"):
        list(LabeledTexts(table(("x", "y", "1")), ("c",)).read())


def test_no_examples_at_all(table):
    with pytest.raises(InputError, match="holds no examples"):
        list(LabeledTexts(table(("x", "y", "-")), ("a",), left_out=("-",)).read())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"texts": ()}, "are 0 fields"),
        ({"labels": ("a", "a")}, "names one of them twice"),
        ({"labels": ("a",)}, "is one class"),
        ({"labels": ("a", "b"), "left_out": ("b",)}, "has 'b', which labels has too"),
    ],
)
def test_options_that_make_no_task(table, options, problem):
    with pytest.raises(InputError, match=problem):
        LabeledTexts(table(), **options)


def test_a_fingerprint_follows_the_options(table):
    examples = table(("x", "y", "1"))
    prints = {
        LabeledTexts(examples, texts, labels=labels).fingerprint()
        for texts in (("a",), ("b",), ("a", "b"))
        for labels in ((), ("1", "2"))
    }
    assert len(prints) == 6
