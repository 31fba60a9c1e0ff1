import json
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from t5x_lite.data import Tfds
from t5x_lite.errors import InputError

TEXTS = ["first", "  二番目 ", "", "fourth"]


@pytest.fixture
def folder(tmp_path, write_dataset):
    """A dataset `tiny` as any other program would leave it on disk."""
    features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "label": np.int64})
    train = [{"text": text, "label": i} for i, text in enumerate(TEXTS)]
    write_dataset(tmp_path / "tiny" / "1.0.0", features, train=train, validation=[{"text": "other", "label": 9}])
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
        ({"name": "not a name"}, "is not a dataset name"),
        ({"split": "test"}, "split='test'.*known are: train, validation"),
        ({"split": "train[:0]"}, "is empty"),
        ({"field": "body"}, "field='body' is missing in example 0 of .*has 'label', 'text'; set field"),
        ({"field": "label"}, "field='label' is .* in example 0 .*set field to a field of text"),
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


WITHOUT_TENSORFLOW = """
import sys
from t5x_lite.data import Data, SentencePiece, Stream, TextFiles, Tfds, batches, evaluation_batches, prefetch
assert not {"tensorflow_datasets", "grain", "sentencepiece", "jax"} & set(sys.modules)
data = Data(TextFiles((sys.argv[1],)), SentencePiece(vocab_size=100), held_out=0.1, cache_dir=sys.argv[2])
made = data.prepare(Stream(32))
stream = prefetch(batches(made.train, batch_size=4, seed=0))
next(stream)
stream.close()
list(evaluation_batches(made.held_out, 4))
assert len(list(Tfds("tiny", data_dir=sys.argv[3]).documents())) == 3
assert "tensorflow" not in sys.modules
"""


@pytest.mark.slow
def test_tensorflow_is_not_imported_though_installed(corpus, folder, run_python, tmp_path):
    text, marker = tmp_path / "text.txt", tmp_path / "marker"
    text.write_text("\n".join(corpus.texts))
    package = tmp_path / "site" / "tensorflow"
    package.mkdir(parents=True)
    code = f"open({str(marker)!r}, 'w').close()\nraise ImportError('tensorflow was imported')\n"
    (package / "__init__.py").write_text(code)
    done = run_python(WITHOUT_TENSORFLOW, text, tmp_path / "cache", folder, path=str(package.parent))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not marker.exists()
