"""Records with named fields from files of several formats."""

import gzip
import json

import pytest

from t5x_lite.data.records.base import Record, field_of, text_in
from t5x_lite.data.records.formats import ClassFiles, JsonlFiles, ParallelFiles, TableFiles
from t5x_lite.errors import InputError

RECORDS = [{"text": "good, bad", "label": "a"}, {"text": '猫 "here"', "label": "b"}]


def write(path, text):
    """Its name; packed where that ends in .gz."""
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    return str(path)


def fields(source):
    return [example.fields for example in source]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_every_kind_of_file_gives_the_same_records(tmp_path, ending):
    tsv = 'text\tlabel\ngood, bad\ta\n\n猫 "here"\tb\n'
    csv = 'text,label\n"good, bad",a\n"猫 ""here""",b\n'
    jsonl = "".join(json.dumps(record) + "\n" for record in RECORDS)
    sides = [write(tmp_path / f"{n}{ending}", "".join(f"{r[n]}\n" for r in RECORDS)) for n in ("text", "label")]
    assert fields(TableFiles((write(tmp_path / f"a.tsv{ending}", tsv),))) == RECORDS
    assert fields(TableFiles((write(tmp_path / f"a.csv{ending}", csv),))) == RECORDS
    assert fields(JsonlFiles((write(tmp_path / f"a.jsonl{ending}", jsonl),))) == RECORDS
    assert fields(ParallelFiles(("text", "label"), tuple(sides))) == RECORDS


def test_a_table_without_a_first_line_of_names(tmp_path):
    path = write(tmp_path / "plain.data", "1,x\n2,y\n")
    source = TableFiles((path,), columns=("id", "word"), separator="comma")
    assert fields(source) == [{"id": "1", "word": "x"}, {"id": "2", "word": "y"}]
    assert [example.location for example in source] == [f"{path}:1", f"{path}:2"]


def test_the_index_that_pandas_writes_has_no_name(tmp_path):
    path = write(tmp_path / "a.csv", ",text\n0,x\n1,y\n")
    assert fields(TableFiles((path,))) == [{"": "0", "text": "x"}, {"": "1", "text": "y"}]


def test_a_field_in_quotes_goes_over_lines_and_locations_are_of_its_last(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\n"two\nlines",a\nz,b\n')
    found = list(TableFiles((path,)))
    assert [example.fields["text"] for example in found] == ["two\nlines", "z"]
    assert found[1].location == f"{path}:4"


def test_files_are_read_in_order_each_with_its_own_names(tmp_path):
    write(tmp_path / "b.tsv", "label\ttext\n2\ty\n")
    write(tmp_path / "a.tsv", "text\tlabel\nx\t1\n")
    assert fields(TableFiles((str(tmp_path),))) == [{"text": "x", "label": "1"}, {"label": "2", "text": "y"}]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.tsv", "text\tlabel\nx\n", r"a.tsv:2 has 1 columns and not the 2 of 'text', 'label'"),
        ("a.tsv", "text\ttext\nx\ty\n", r"the first line of .*a.tsv names no columns: 'text', 'text'"),
        ("a.csv", 'text,label\n"x"y,z\n', r"a.csv:2 is not CSV"),
    ],
)
def test_a_broken_table_names_the_line(tmp_path, name, text, problem):
    with pytest.raises(InputError, match=problem):
        list(TableFiles((write(tmp_path / name, text),)))


def test_what_is_no_object_or_not_parallel_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"a.jsonl:2 is a list; write one JSON object a line"):
        list(JsonlFiles((write(tmp_path / "a.jsonl", '{"a": 1}\n[2]\n'),)))
    long, short = write(tmp_path / "long", "a\nb\n"), write(tmp_path / "short", "a\n")
    with pytest.raises(InputError, match=r"short ends before line 2, which .*long has"):
        list(ParallelFiles(("x", "y"), (long, short)))
    with pytest.raises(InputError, match="do not go with paths"):
        ParallelFiles(("x", "y"), (long,))


def test_fields_that_are_missing_or_no_text_are_named():
    example = Record("a.tsv:2", {"text": " fine ", "stars": 3, "empty": " "})
    assert text_in(example, "text", "texts") == "fine"
    with pytest.raises(InputError, match="label='label' is missing in a.tsv:2, which has 'text', 'stars', 'empty'"):
        field_of(example, "label", "label")
    with pytest.raises(InputError, match="texts='stars' is 3 in a.tsv:2; set texts to a field of text"):
        text_in(example, "stars", "texts")
    with pytest.raises(InputError, match="texts='empty' is empty in a.tsv:2"):
        text_in(example, "empty", "texts")


def test_a_fingerprint_follows_content_and_options(tmp_path):
    path = write(tmp_path / "a.tsv", "x\ty\n1\t2\n")
    first = TableFiles((path,)).fingerprint()
    assert first == TableFiles((path,)).fingerprint()
    assert first != TableFiles((path,), columns=("x", "y")).fingerprint()
    write(tmp_path / "a.tsv", "x\ty\n1\t3\n")
    assert first != TableFiles((path,)).fingerprint()


def test_a_file_for_each_class(tmp_path):
    for name, texts in {"bad": "dull\n\nslow \n", "good": "fine\n"}.items():
        (tmp_path / name).write_text(texts)
    files = tuple(str(tmp_path / name) for name in ("bad", "good"))
    found = list(ClassFiles(("negative", "positive"), files))
    assert [tuple(example.fields.values()) for example in found] == [
        ("dull", "negative"),
        ("slow", "negative"),
        ("fine", "positive"),
    ]
    assert found[1].location.endswith("bad:3")
    with pytest.raises(InputError, match="give one file for each"):
        ClassFiles(("negative",), files)
    with pytest.raises(InputError, match="names several files; name one for each class"):
        list(ClassFiles(("negative", "positive"), (files[0], str(tmp_path / "*"))))
