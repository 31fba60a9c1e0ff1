"""Records of datasets of TensorFlow Datasets."""

import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from t5x_lite.data import Tfds
from t5x_lite.data.records.base import field_of
from t5x_lite.errors import InputError

F = tfds.features
FEATURES = F.FeaturesDict(
    {
        "question": F.Text(),
        "possible": np.bool_,
        "score": np.float32,
        "label": F.ClassLabel(names=["no", "yes"]),
        "idx": F.FeaturesDict({"query": np.int32}),
        "answers": F.Sequence({"text": F.Text(), "answer_start": np.int32}),
        "tokens": F.Sequence(F.Text()),
        "ner": F.Sequence(F.ClassLabel(names=["O", "B-PER"])),
        "vector": F.Tensor(shape=(2,), dtype=np.float32),
        "pair": F.Translation(languages=["de", "en"]),
    }
)
FIRST = {
    "question": "Wer? 猫",
    "possible": True,
    "score": 2.5,
    "label": "yes",
    "idx": {"query": 3},
    "answers": {"text": ["er", "sie"], "answer_start": [1, 20]},
    "tokens": ["Anna", "liest"],
    "ner": ["B-PER", "O"],
    "vector": [0.5, 1.0],
    "pair": {"de": "ja", "en": "yes"},
}
# As in test sets, whose labels are hidden.
HIDDEN_STATES = FIRST | {"label": -1, "answers": {"text": [], "answer_start": []}, "tokens": [], "ner": []}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_dataset):
    folder = tmp_path_factory.mktemp("tfds")
    write_dataset(folder / "tiny" / "1.0.0", FEATURES, train=[FIRST, FIRST], test=[HIDDEN_STATES])
    return str(folder)


def test_features_are_plain_values_with_classes_by_name(folder):
    examples = list(Tfds("tiny", data_dir=folder))
    assert [example.fields for example in examples] == [FIRST, FIRST]
    assert [type(value) for value in examples[0].fields["answers"]["answer_start"]] == [int, int]
    assert examples[1].location == "example 1 of split='train' of name='tiny'"
    assert "tensorflow" not in sys.modules


def test_what_a_test_set_hides_is_none(folder):
    (example,) = Tfds("tiny", "test", folder)
    assert example.fields == HIDDEN_STATES | {"label": None}


def test_fields_in_fields_have_a_slash(folder):
    example = next(iter(Tfds("tiny", data_dir=folder)))
    assert field_of(example, "answers/text", "answers") == ["er", "sie"]
    assert field_of(example, "answers/text/1", "answers") == "sie"
    for missing in ("answers/texts", "answers/text/2", "question/0"):
        with pytest.raises(InputError, match=f"texts='{missing}' is missing in example 0 .*which has .*'answers/text'"):
            field_of(example, missing, "texts")


def test_a_fingerprint_tells_splits_apart(folder):
    parts = [Tfds("tiny", split, folder).fingerprint() for split in ("train", "test", "train[:1]", "train")]
    assert len(set(parts)) == 3
    assert parts[0] == parts[3]


def test_a_dataset_or_split_that_is_not_there(folder):
    with pytest.raises(InputError, match=r"split='dev' is not in dataset tiny/1.0.0; known are: train, test"):
        list(Tfds("tiny", "dev", folder))
    with pytest.raises(InputError, match="name='other' is neither a dataset of TFDS nor on disk"):
        Tfds("other", data_dir=folder).fingerprint()
