"""What a Hugging Face folder says beside architecture and weights, and an export of its model says again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t5x_lite.errors import InputError
from t5x_lite.files import read_json

GENERATION_FILE = "generation_config.json"
IMAGE_PROCESSOR_FILE = "preprocessor_config.json"
_LABELS = ("id2label", "label2id")
MULTI_LABEL = "multi_label_classification"
"""The `problem_type` of classes each of which has a probability of its own."""
_FORCED = ("forced_bos_token_id", "forced_eos_token_id")
"""What `GenerationDefaults` says, also where a folder does not."""


@dataclass(frozen=True)
class Origin:
    """The folder that a model came from, in its own words.

    An export repeats them. What the folder leaves out has its family's default there, and is left out again. Raises
    `InputError` for texts that are not JSON objects, and values that are not ids or labels.
    """

    model_type: str
    config: str = "{}"
    """The special ids, the labels and the type of problem in its config.json, as JSON."""
    generation: str = ""
    """Its generation_config.json; empty where it has none."""
    image_processor: str = ""
    """The preprocessor_config.json of a model of pictures; empty where it has none."""

    def __post_init__(self) -> None:
        for text in filter(None, (self.generation, self.image_processor)):
            _parse(text)
        for name, value in _parse(self.config).items():
            if not _is_valid(name, value):
                raise InputError(f"{name}={value!r:.99} in config.json is not valid; it is damaged: fetch it again")

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes in the order of their numbers; empty where it has none, or not all."""
        names = _parse(self.config).get("id2label") or {}
        numbers = [str(number) for number in range(len(names))]
        return tuple(names[number] for number in numbers) if set(names) == set(numbers) else ()

    @property
    def has_independent_classes(self) -> bool:
        """Whether a text or a picture may have several classes, each with a probability of its own."""
        return _parse(self.config).get("problem_type") == MULTI_LABEL

    @property
    def processor(self) -> dict[str, Any]:
        """How pictures are prepared, as its preprocessor_config.json has it; empty where it has none."""
        return _parse(self.image_processor or "{}")

    def restore(self, description: Mapping[str, Any], num_classes: int | None) -> dict[str, Any]:
        """A config.json with the values of this one; without its labels where there are not `num_classes` of them."""
        kept = _parse(self.config)
        if num_classes is not None and len(kept.get("id2label") or {}) != num_classes:
            kept = {name: value for name, value in kept.items() if name not in _LABELS}
        stated = (*kept, *_LABELS, *_FORCED)
        rest = {name: value for name, value in description.items() if name in stated or not _is_kept(name)}
        return rest | kept


def read_origin(folder: Path, theirs: Mapping[str, Any]) -> Origin:
    """That of a model with this config.json; raises as `Origin` does."""
    kept = {name: value for name, value in theirs.items() if _is_kept(name) and name not in _FORCED}
    contents = [read_json(folder / name) for name in (GENERATION_FILE, IMAGE_PROCESSOR_FILE)]
    files = [json.dumps(content) if content else "" for content in contents]
    return Origin(theirs["model_type"], json.dumps(kept), *files)


def _is_kept(name: str) -> bool:
    return name.endswith("_token_id") or name in (*_LABELS, "problem_type")


def _is_valid(name: str, value: Any) -> bool:
    if value is None:
        return True
    if name == "problem_type":
        return isinstance(value, str)
    if name in _LABELS:
        kind = str if name == "id2label" else int
        return isinstance(value, dict) and all(type(label) is kind for label in value.values())
    return all(type(token_id) is int for token_id in (value if isinstance(value, list) else [value]))


def _parse(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError("origin is not what was written; the experiment is damaged: use a copy of it")
    return content
