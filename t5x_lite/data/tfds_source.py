"""Documents from a dataset of TensorFlow Datasets."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from t5x_lite.data.sources import Source
from t5x_lite.data.tfds_dataset import TfdsTexts


@dataclass(frozen=True)
class Tfds(Source):
    """A text field of a split of a dataset that TFDS has on disk as ArrayRecord or can prepare without TensorFlow."""

    name: str
    """As in tfds.builder, e.g. 'lm1b', 'wiki40b/en' or 'my_dataset:1.0.0'."""
    split: str = "train"
    """A split or a part of one, e.g. 'train[:10%]'."""
    field: str = "text"
    """The feature that is the document; 'a/b' is b of the feature a."""
    data_dir: str = ""
    """Folder of the datasets; empty means TFDS's own, ~/tensorflow_datasets."""

    def documents(self) -> Iterator[str]:
        return (text for (text,) in self._texts().examples() if text)

    def fingerprint(self) -> str:
        full_name, examples = self._texts().identity()
        parts = (full_name, self.split, self.field, examples)
        return hashlib.blake2b(f"Tfds {parts}".encode(), digest_size=16).hexdigest()

    def _texts(self) -> TfdsTexts:
        return TfdsTexts(self.name, self.split, self.data_dir, {"field": self.field})
