"""Parquet, Arrow, and datasets of the hub, which lie in a folder here."""

import gzip
import json

import pyarrow
import pytest
from pyarrow import ipc, parquet

from t5x_lite.data import HuggingFaceDataset, ParquetFiles, TextFiles, TextTemplate, TextToText
from t5x_lite.errors import InputError

ROWS = [
    {"text": f" document {n} ", "url": f"x/{n}", "translation": {"de": f"Satz {n}", "en": None}} for n in range(2500)
]


@pytest.fixture
def table():
    return pyarrow.Table.from_pylist(ROWS)


@pytest.fixture(params=["parquet", "arrow", "stream.arrow", "feather"])
def path(request, table, tmp_path):
    path = tmp_path / f"table.{request.param}"
    if request.param == "parquet":
        parquet.write_table(table, path, row_group_size=700)
    else:
        make = ipc.new_stream if "stream" in request.param else ipc.new_file
        with make(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=700)
    return path


def test_rows_are_documents_and_records(path):
    expected = [row["text"].strip() for row in ROWS]
    for source in (TextFiles((str(path),)), TextFiles((str(path.parent),)), ParquetFiles((str(path),))):
        assert list(source.documents()) == expected
    records = list(ParquetFiles((str(path),)))
    assert [record.fields for record in records] == ROWS
    assert records[1999].location == f"{path}:2000"


def test_fields_in_fields(path):
    assert next(TextFiles((str(path),), field="translation/de").documents()) == "Satz 0"
    pairs = TextToText(ParquetFiles((str(path),)), TextTemplate("{url}", "{translation/de}"))
    assert next(pairs.read()) == ("x/0", "Satz 0")


def test_a_missing_column_is_named_with_those_there_are(path):
    with pytest.raises(InputError, match=r"field='body' is missing in .*table.*:1, which has 'text', 'url', 'transl"):
        next(TextFiles((str(path),), field="body").documents())
    with pytest.raises(InputError, match="field='translation/en' is None in .*:1; set field to a field of text"):
        next(TextFiles((str(path),), field="translation/en").documents())


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-100], lambda content: b"x" * 50, lambda content: b"PAR1PAR1"]
)
def test_a_broken_file_is_one_sentence(path, damage):
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"table\..* is broken as (parquet|arrow|feather) \(.*\); copy it again"):
        list(ParquetFiles((str(path),)))


@pytest.fixture
def dataset(tmp_path):
    pytest.importorskip("datasets", reason="needs the package datasets")
    folder = tmp_path / "dataset"
    folder.mkdir()
    for number in range(3):
        with gzip.open(folder / f"train-{number:05d}-of-00003.json.gz", "wt") as file:
            file.writelines(json.dumps({"text": f"{number} {n}", "label": n % 2}) + "\n" for n in range(10))
    (folder / "test.json").write_text(json.dumps({"text": "held out", "label": 0}))
    return str(folder)


def test_a_dataset_of_the_hub_streams(dataset):
    source = HuggingFaceDataset(dataset)
    expected = [f"{number} {n}" for number in range(3) for n in range(10)]
    assert list(source.documents()) == expected
    assert list(HuggingFaceDataset(dataset, split="test").documents()) == ["held out"]
    shards = source.shards()
    assert [list(shard.documents()) for shard in shards] == [expected[:10], expected[10:20], expected[20:]]
    assert next(iter(shards[1])).location == f"example 0 of split='train' of name={dataset!r}, part 1 of 3"


def test_the_fingerprint_follows_the_dataset(dataset):
    prints = [
        HuggingFaceDataset(dataset, **options).fingerprint() for options in ({}, {"split": "test"}, {"field": "x"})
    ]
    assert len(set(prints)) == 3
    assert HuggingFaceDataset(dataset).fingerprint() == prints[0]


def test_a_dataset_that_is_not_there(dataset, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for source in (HuggingFaceDataset(dataset, split="dev"), HuggingFaceDataset(f"{dataset}/nothing")):
        with pytest.raises(
            InputError, match=r"name=.* \(config='', split='.*'\) cannot be read \(.*\); correct the name"
        ):
            list(source.documents())
