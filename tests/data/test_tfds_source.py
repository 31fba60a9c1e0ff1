import json
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from t5x_lite.data import Tfds
from t5x_lite.errors import InputError

TEXTS = ["first", "  二番目 ", "", "fourth"]


@pytest.fixture
def folder(tmp_path):
    """A dataset `tiny` as any other program would leave it on disk."""
    path = tmp_path / "tiny" / "1.0.0"
    path.mkdir(parents=True)
    identity = tfds.core.DatasetIdentity(
        name="tiny", version=tfds.core.Version("1.0.0"), data_dir=str(path), module_name=""
    )
    features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "label": np.int64})
    info = tfds.core.DatasetInfo(builder=identity, features=features)
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=3, file_format="array_record")
    writer.initialize_splits(["train", "validation"])
    writer.add_examples({"train": [{"text": text, "label": i} for i, text in enumerate(TEXTS)]})
    writer.add_examples({"validation": [{"text": "other", "label": 9}]})
    writer.close_all()
    return tmp_path


def source(folder, **change):
    return Tfds(**{"name": "tiny", "data_dir": str(folder), **change})


def test_documents_of_a_dataset_on_disk(folder):
    assert list(source(folder).documents()) == ["first", "二番目", "fourth"]
    assert list(source(folder, split="train[3:]").documents()) == ["fourth"]
    assert list(source(folder, name="tiny:1.0.0", split="validation").documents()) == ["other"]
    assert "tensorflow" not in sys.modules


def test_fingerprint_tells_parts_apart(folder):
    parts = [source(folder), source(folder, split="train[:2]"), source(folder, split="validation")]
    assert len({part.fingerprint() for part in parts}) == 3
    assert source(folder).fingerprint() == parts[0].fingerprint()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "no_such_dataset"}, "name='no_such_dataset' is neither"),
        ({"name": "not a name"}, "is no dataset name"),
        ({"split": "test"}, "split='test'.*known are: train, validation"),
        ({"split": "train[:0]"}, "is empty"),
        ({"field": "body"}, "field='body'.*one of: label, text"),
        ({"field": "label"}, "field='label'.*no text"),
    ],
)
def test_bad_choices(folder, change, message):
    with pytest.raises(InputError, match=message):
        list(source(folder, **change).documents())


def test_a_dataset_that_only_tensorflow_reads(folder):
    path = folder / "tiny" / "1.0.0" / "dataset_info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "fileFormat": "tfrecord"}))
    with pytest.raises(InputError, match=r"as tfrecord.*file_format=array_record"):
        list(source(folder).documents())


class _Builder(tfds.core.GeneratorBasedBuilder):
    """Like the code of a dataset in a script of its own, outside of any package."""

    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = None

    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, downloads):
        return {"train": self._generate_examples()}


class T5xLiteGood(_Builder):
    __module__ = "script"

    def _generate_examples(self):
        yield from ((i, {"text": f"document {i}"}) for i in range(5))


class T5xLiteNeedsTensorflow(_Builder):
    __module__ = "script"

    def _generate_examples(self):
        import tensorflow

        yield 0, {"text": tensorflow.__version__}


def test_a_dataset_with_code_is_prepared(tmp_path, capfd):
    good = Tfds("t5x_lite_good", data_dir=str(tmp_path))
    assert sorted(good.documents()) == [f"document {i}" for i in range(5)]
    assert capfd.readouterr() == ("", "")


def test_a_dataset_whose_code_needs_tensorflow(tmp_path, monkeypatch):
    (tmp_path / "tensorflow.py").write_text("__version__ = 'installed'")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"without TensorFlow.*tfds build .*--file_format=array_record"):
        Tfds("t5x_lite_needs_tensorflow", data_dir=str(tmp_path)).fingerprint()
    assert "tensorflow" not in sys.modules
    import tensorflow

    assert tensorflow.__version__ == "installed"
    del sys.modules["tensorflow"]
