"""What there is to know of a family at Hugging Face: one value for each `model_type`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from t5x_lite.convert.fields import Field
from t5x_lite.convert.generation import special_ids
from t5x_lite.convert.heads import Heads
from t5x_lite.convert.table import Row, Tensors, Zeros
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.models import ModelConfig


@dataclass(frozen=True, kw_only=True)
class HuggingFaceFamily(ABC):
    """The fields of a family's config.json and the names of its tensors, in either direction."""

    model_type: str
    name: str
    """What the names of its classes begin with."""
    config: type[ModelConfig]
    fields: tuple[Field, ...]
    heads: Heads
    ids: Mapping[str, int]
    """The published models' special ids, which silence means too."""
    fits: Callable[[Any, Tokenizer | None], bool] = lambda config, tokenizer: True
    """Which models (config, tokenizer) are written as this one, of several families with one config."""

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> Any:
        """The architecture that a config.json and its tensors describe; `fields` are some of it that are known.

        `tensors` have the names of `rows`. Raises `InputError` for what we do not have.
        """
        for field in (*self.fields, self.heads):
            fields = field.read(theirs, tensors) | fields
        return self.config(**fields)

    def export_config(self, config: Any, vocabulary: Vocabulary | None) -> dict[str, Any]:
        """The config.json of an architecture. Raises `InputError` for what has no place there."""
        written = {"model_type": self.model_type, "tie_word_embeddings": config.tied}
        for field in (*self.fields, self.heads):
            written |= field.write(config, self.name)
        return written | self.special_ids(config, vocabulary)

    def special_ids(self, config: Any, vocabulary: Vocabulary | None) -> dict[str, Any]:
        """What config.json says of them: the vocabulary's, or the published ones without any."""
        return special_ids(vocabulary, **self.ids)

    @abstractmethod
    def own_names(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        """Their tensors under the names of `rows`, each value once."""

    @abstractmethod
    def rows(self, config: Any) -> list[Row | Zeros]:
        """The names of every parameter of an architecture."""

    def repeated(self, config: Any) -> dict[str, str]:
        """Further names of some of the tensors."""
        return {}


def with_prefix(tensors: Tensors, prefix: str, body: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The tensors with `prefix` before those that begin with one of `body`: a model without a head leaves it out."""
    alone = not any(name.startswith(f"{prefix}.") for name in tensors)
    return {
        f"{prefix}.{name}" if alone and name.split(".")[0] in body else name: value for name, value in tensors.items()
    }
