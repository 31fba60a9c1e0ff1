"""Examples of a dataset of TensorFlow Datasets, read without TensorFlow."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from t5x_lite.data.examples import Example, Examples
from t5x_lite.data.tfds_dataset import TfdsTexts, import_tfds
from t5x_lite.errors import InputError


@dataclass(frozen=True)
class TfdsExamples(Examples):
    """A split of a dataset that TFDS has on disk as ArrayRecord or can prepare without TensorFlow.

    Fields are its features as plain values of Python: bytes as text, classes by their names (None where a test set
    hides them), arrays and sequences as lists. 'a/b' is b of the feature a, such as 'answers/text' in SQuAD.
    """

    name: str
    """As in tfds.builder, e.g. 'glue/cola' or 'super_glue/boolq:1.0.2'."""
    split: str = "train"
    """A split or a part of one, e.g. 'validation' or 'train[:10%]'."""
    data_dir: str = ""
    """Folder of the datasets; empty means TFDS's own, ~/tensorflow_datasets."""

    def __iter__(self) -> Iterator[Example]:
        dataset = self._dataset()
        features = dataset.features()
        for number, row in enumerate(dataset.rows(), start=1):
            place = dataset.place(number)
            try:
                yield Example(place, {name: _plain(value, features[name]) for name, value in row.items()})
            except UnicodeDecodeError:
                raise InputError(f"{place} has text that is not UTF-8; choose another dataset") from None

    def fingerprint(self) -> str:
        parts = (*self._dataset().identity(), self.split)
        return hashlib.blake2b(f"TfdsExamples {parts}".encode(), digest_size=16).hexdigest()

    def _dataset(self) -> TfdsTexts:
        return TfdsTexts(self.name, self.split, self.data_dir, {})


def with_datasets(examples: Any, **changes: str) -> Any:
    """Examples, or several, with these fields of every dataset of TFDS that is in them changed, such as `split`."""
    if isinstance(examples, tuple):
        return tuple(with_datasets(one, **changes) for one in examples)
    if isinstance(examples, TfdsExamples):
        return replace(examples, **changes)
    if not isinstance(examples, Examples):
        return examples
    changed = {field.name: with_datasets(getattr(examples, field.name), **changes) for field in fields(examples)}
    return replace(examples, **changed)


def datasets_in(examples: Any) -> list[TfdsExamples]:
    """The datasets of TFDS that examples, or several, are made of."""
    if isinstance(examples, TfdsExamples):
        return [examples]
    parts = examples if isinstance(examples, tuple) else ()
    if isinstance(examples, Examples):
        parts = [getattr(examples, field.name) for field in fields(examples)]
    return [dataset for part in parts for dataset in datasets_in(part)]


def _plain(value: Any, feature: Any) -> Any:
    """A value of TFDS as Python has it."""
    features = import_tfds().features
    if isinstance(feature, features.FeaturesDict):
        return {name: _plain(inner, feature[name]) for name, inner in value.items()}
    if isinstance(feature, features.Sequence):
        if isinstance(feature.feature, features.FeaturesDict):
            # A list of records comes as a record of lists.
            return {name: [_plain(one, feature.feature[name]) for one in inner] for name, inner in value.items()}
        return [_plain(one, feature.feature) for one in value]
    if isinstance(feature, features.ClassLabel):
        return None if value < 0 else feature.int2str(int(value))
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
