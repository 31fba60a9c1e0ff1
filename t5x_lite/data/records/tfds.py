"""A dataset of TensorFlow Datasets, read without TensorFlow."""

import contextlib
import dataclasses
import errno
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from t5x_lite.data.records.base import Record, Records, digest
from t5x_lite.errors import InputError

_BLOCK = 256


@dataclass(frozen=True)
class Tfds(Records):
    """A split of a dataset that TFDS has on disk as ArrayRecord or can prepare without TensorFlow.

    Fields are its features as plain Python values: bytes as text, classes by their names (None where a test set hides
    them), arrays and sequences as lists; images stay encoded. 'a/b' is b of the feature a, as 'answers/text' in SQuAD.
    """

    name: str
    """As in tfds.builder, e.g. 'lm1b', 'wiki40b/en', 'glue/cola' or 'super_glue/boolq:1.0.2'."""
    split: str = "train"
    """A split or a part of one, e.g. 'validation' or 'train[:10%]'."""
    data_dir: str = ""
    """Folder of the datasets; empty means TFDS's own, ~/tensorflow_datasets."""
    field: str = dataclasses.field(default="text", kw_only=True)
    """The feature with the running text."""

    def __iter__(self) -> Iterator[Record]:
        builder = self._builder()
        features, tfds = builder.info.features, import_tfds()
        with _without_tensorflow():
            try:
                # Images beside the text would be decoded for nothing.
                images = [name for name, feature in features.items() if isinstance(feature, tfds.features.Image)]
                decoders = {name: tfds.decode.SkipDecoding() for name in images}
                rows = builder.as_data_source(split=self.split, decoders=decoders)
            except NotImplementedError:
                raise InputError(
                    f"name={self.name!r} is on disk in {builder.data_dir} as {builder.info.file_format.value}, which "
                    "only TensorFlow reads; prepare it once with file_format=array_record in another data_dir"
                ) from None
        with rows.data_source if hasattr(rows.data_source, "__exit__") else contextlib.nullcontext():
            for start in range(0, len(rows), _BLOCK):
                with _without_tensorflow():
                    block = rows.__getitems__(list(range(start, min(start + _BLOCK, len(rows)))))
                for number, row in enumerate(block, start=start):
                    location = f"example {number} of split={self.split!r} of name={self.name!r}"
                    try:
                        record = {name: _plain(value, features[name]) for name, value in row.items()}
                    except UnicodeDecodeError:
                        raise InputError(f"{location} has text that is not UTF-8; choose another dataset") from None
                    yield Record(location, record)

    def label_names(self, field: str) -> tuple[str, ...]:
        """The names of the classes of a feature by number; none where it has no classes."""
        features = self._builder().info.features
        feature = dict(features).get(field)
        return tuple(feature.names) if isinstance(feature, import_tfds().features.ClassLabel) else ()

    def fingerprint(self) -> str:
        info = self._builder().info
        return digest("Tfds", info.full_name, info.splits[self.split].num_examples, self.split, self.field)

    def _builder(self) -> Any:
        """The prepared dataset; `InputError` where it has no such split."""
        tfds = import_tfds()
        with _without_tensorflow(), _quiet():
            try:
                builder = self._known_builder(tfds)
            except tfds.core.DatasetNotFoundError:
                where = self.data_dir or "~/tensorflow_datasets"
                problem = f"is neither a dataset of TFDS nor on disk in {where}"
                raise InputError(f"name={self.name!r} {problem}; correct the name or set data_dir") from None
            except Exception as error:  # a dataset's own code runs here and may fail in any way
                if "Parsing builder name" in str(error):
                    remedy = "write 'name', 'name/config' or 'name:1.0.0'"
                    raise InputError(f"name={self.name!r} is not a dataset name; {remedy}") from None
                raise self._unprepared(error) from error
            if not builder.is_prepared():
                config = tfds.download.DownloadConfig(try_download_gcs=False)  # that path needs TensorFlow
                try:
                    builder.download_and_prepare(file_format="array_record", download_config=config)
                except Exception as error:
                    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                        raise
                    raise self._unprepared(error) from error
        splits, name = builder.info.splits, builder.info.full_name
        try:
            count = splits[self.split].num_examples
        except (KeyError, ValueError):
            known = ", ".join(splits) or "none"
            raise InputError(f"split={self.split!r} is not in dataset {name}; known are: {known}") from None
        if not count:
            raise InputError(f"split={self.split!r} of dataset {name} is empty; choose a larger part")
        return builder

    def _known_builder(self, tfds: ModuleType) -> Any:
        """By the code that TFDS has for the dataset, or from its files."""
        options = {"data_dir": self.data_dir} if self.data_dir else {}
        try:
            return tfds.builder(self.name, **options)
        except tfds.core.DatasetNotFoundError:
            # Without TensorFlow TFDS leaves the older half of its text datasets out, GLUE and WMT among them.
            for room in ("question_answering", "summarization", "text", "translate"):
                importlib.import_module(f"tensorflow_datasets.{room}")
            return tfds.builder(self.name, **options)
        except ModuleNotFoundError:
            # Its code needs TensorFlow to describe it; a prepared dataset describes itself.
            files = importlib.import_module("tensorflow_datasets.core.read_only_builder")
            with contextlib.suppress(tfds.core.DatasetNotFoundError):
                return files.builder_from_files(self.name, **options)
            raise

    def _unprepared(self, error: Exception) -> InputError:
        if isinstance(error, ModuleNotFoundError) and error.name not in (None, "tensorflow"):
            return InputError(f"name={self.name!r} needs the package {error.name}; run 'pip install {error.name}'")
        reason = " ".join(str(error).split())[:200]
        return InputError(
            f"name={self.name!r} cannot be prepared here without TensorFlow ({type(error).__name__}: {reason}); "
            f"run 'tfds build {self.name} --file_format=array_record' once where that works and set data_dir"
        )


def with_datasets(examples: Any, **changes: str) -> Any:
    """Records, or several, with these fields of every TFDS dataset in them changed, such as `split`."""
    if isinstance(examples, tuple):
        return tuple(with_datasets(one, **changes) for one in examples)
    if isinstance(examples, Records) and not isinstance(examples, Tfds):
        changes = {name: with_datasets(value, **changes) for name, value in vars(examples).items()}
    return dataclasses.replace(examples, **changes) if isinstance(examples, Records) else examples


def datasets_in(examples: Any) -> list[Tfds]:
    """The TFDS datasets in records, or in several."""
    if isinstance(examples, Tfds):
        return [examples]
    parts = vars(examples).values() if isinstance(examples, Records) else examples
    return [one for part in parts for one in datasets_in(part)] if isinstance(examples, Records | tuple) else []


def _plain(value: Any, feature: Any) -> Any:
    """A value of TFDS as a plain Python value."""
    features = import_tfds().features
    if isinstance(feature, features.FeaturesDict):
        return {name: _plain(inner, feature[name]) for name, inner in value.items()}
    if isinstance(feature, features.Sequence):
        if isinstance(feature.feature, features.FeaturesDict):
            # TFDS gives a list of records as a record of lists.
            return {name: [_plain(one, feature.feature[name]) for one in inner] for name, inner in value.items()}
        return [_plain(one, feature.feature) for one in value]
    if isinstance(feature, features.ClassLabel):
        return None if value < 0 else feature.int2str(int(value))
    if isinstance(value, bytes):
        return value if isinstance(feature, features.Image) else value.decode()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def import_tfds() -> ModuleType:
    """TFDS with its progress bars off; `tensorflow_datasets` takes half a second to import, so not at module level."""
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    return tfds


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences prints and warnings of TFDS, whose errors are raised."""
    from absl import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(verbosity)


class _Blocked(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds TensorFlow, so that no later finder does, and refuses to import it."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == "tensorflow" else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> NoReturn:
        raise ModuleNotFoundError("t5x_lite reads data without TensorFlow", name="tensorflow")


@contextlib.contextmanager
def _without_tensorflow() -> Iterator[None]:
    """Prevents a dataset's own code from importing TensorFlow, unless the caller has imported it already."""
    if "tensorflow" in sys.modules or importlib.util.find_spec("tensorflow") is None:
        yield
        return
    finder = _Blocked()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
