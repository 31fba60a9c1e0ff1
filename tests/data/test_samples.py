"""The files that the examples read."""

from collections import Counter

import pytest

from t5x_lite import InputError, sample_data
from t5x_lite.data import LabeledTexts, TableFiles, TextFiles
from t5x_lite.data.samples import FILES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return sample_data(tmp_path_factory.mktemp("samples") / "new")


def test_each_is_what_it_is_called(folder):
    assert tuple(sorted(path.name for path in folder.iterdir())) == FILES
    assert sum(path.stat().st_size for path in folder.iterdir()) < 200_000
    novel = list(TextFiles((str(folder / "novel.txt"),)).documents())
    assert novel[1].startswith("It is a truth universally acknowledged") and len(novel) == 439
    pairs = [line.split("\t") for line in (folder / "de_en.tsv").read_text(encoding="utf-8").splitlines()]
    assert len(pairs) == 50 and {len(pair) for pair in pairs} == {2}
    for german, english in (("Alle Menschen sind frei", "All human beings are born free"), ("Keine", "Nothing")):
        assert [pair for pair in pairs if pair[0].startswith(german) and pair[1].startswith(english)]
    assert len((folder / "german.txt").read_text(encoding="utf-8").splitlines()) == 8


def test_as_many_sentences_of_each_author(folder):
    texts = {}
    for name, count in {"train": 200, "test": 50}.items():
        table = TableFiles((str(folder / f"authors_{name}.tsv"),))
        labels = ("austen", "doyle", "melville")
        source = LabeledTexts(table, texts=("text",), label="author", labels=labels)
        examples = [record.fields for record in source.examples]
        assert Counter(example["author"] for example in examples) == dict.fromkeys(labels, count)
        texts[name] = {example["text"] for example in examples}
    assert not texts["train"] & texts["test"]


def test_files_that_are_there_stay(tmp_path):
    (tmp_path / "german.txt").write_text("mine")
    assert sample_data(str(tmp_path)) == tmp_path
    assert (tmp_path / "german.txt").read_text() == "mine" and (tmp_path / "novel.txt").exists()
    with pytest.raises(InputError, match="german.txt is not a folder; name another one"):
        sample_data(tmp_path / "german.txt")
    with pytest.raises(InputError, match=r"folder=.*below cannot be written \(Not a directory\); name another"):
        sample_data(tmp_path / "german.txt" / "below")
