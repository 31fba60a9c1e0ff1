"""What there is to know of a family at Hugging Face: fields of its config.json, heads and names of tensors."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Protocol, get_args, get_origin, get_type_hints

import numpy as np

from t5x_lite.convert.generation import special_ids
from t5x_lite.convert.table import Names, Tensors, has
from t5x_lite.data import Tokenizer, Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig
from t5x_lite.models.base import TASK_HEADS

ACTIVATIONS = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh", "gelu_accurate"),
    "quick_gelu": ("quick_gelu",),
    "relu": ("relu",),
    "silu": ("silu", "swish"),
    "tanh": ("tanh",),
}
"""Their names of each of our activations; the first is the one that is written."""
OUTPUT = "lm_head.weight"
"""The kernel that scores tokens, where it is not an embedding."""
OURS = "t5x_lite"
"""The field of a config.json with fields of ours that Transformers does not have, and ignores."""


class Field(Protocol):
    """Fields of a config.json and those of ours with the same meaning."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        """Ours, from a config.json and the tensors beside it. Raises `InputError` for what we do not have."""

    def write(self, config: Any, family: str) -> dict[str, Any]:
        """Theirs. Raises `InputError` for what Hugging Face's `family` does not have."""


@dataclass(frozen=True)
class Numbers:
    names: Mapping[str, str | tuple[str, float | str]]
    """Ours, by theirs; (ours, default) where a config.json may leave it out: a number, or another of their fields."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        fields, missing = {}, []
        for name, ours in self.names.items():
            ours, default = (ours, None) if isinstance(ours, str) else ours
            default = theirs.get(default) if isinstance(default, str) else default
            fields[ours] = value = default if theirs.get(name) is None else theirs[name]
            missing += [name] if value is None else []
        if missing:
            raise InputError(
                f"config.json lacks {', '.join(missing)}; it is not one of model_type={theirs['model_type']!r}"
            )
        for name in self.names:
            if isinstance(theirs.get(name), bool) or not isinstance(theirs.get(name), int | float | None):
                raise InputError(
                    f"{name}={theirs[name]!r} in config.json is not a number; the file is damaged: fetch it again"
                )
        return fields

    def write(self, config: Any, family: str) -> dict[str, Any]:
        return {
            theirs: getattr(config, ours if isinstance(ours, str) else ours[0]) for theirs, ours in self.names.items()
        }


@dataclass(frozen=True)
class ActivationName:
    """The activation, which has other names there."""

    theirs: str = "hidden_act"
    default: str = "gelu"
    """What holds where a config.json leaves it out."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: ACTIVATIONS)

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        name = self.default if theirs.get(self.theirs) is None else theirs[self.theirs]
        for ours, known in self.names.items():
            if name in known:
                return {"activation": ours}
        every = ", ".join(known for group in self.names.values() for known in group)
        raise InputError(f"{self.theirs}={name!r} in config.json is unknown; known are {every}")

    def write(self, config: Any, family: str) -> dict[str, Any]:
        check_exportable(family, "activation", config.activation, *self.names)
        return {self.theirs: self.names[config.activation][0]}


@dataclass(frozen=True)
class Constants:
    """Fields that have one value."""

    theirs: Mapping[str, Any] = field(default_factory=dict)
    """Of a config.json, which may leave them out."""
    checked: bool = True
    """Whether another value there describes an architecture that we do not have."""
    ours: Mapping[str, Any] = field(default_factory=dict)
    """Of ours, which a config.json does not have."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        if self.checked:
            refuse(theirs, **self.theirs)
        return dict(self.ours)

    def write(self, config: Any, family: str) -> dict[str, Any]:
        for name, value in self.ours.items():
            check_exportable(family, name, getattr(config, name), value)
        return dict(self.theirs)


Layers = Mapping[str, Mapping[str, str]]
"""The layers of each head, by our name and theirs."""
Classes = Mapping[tuple[str, ...], str]
"""How the name of the class ends that has these heads."""
TASK_CLASSES: Classes = {
    ("classification",): "ForSequenceClassification",
    ("multiple_choice",): "ForMultipleChoice",
    ("tagging",): "ForTokenClassification",
    ("question_answering",): "ForQuestionAnswering",
}
"""The classes with the head of a task, none of which has another head beside it."""
TASK_LAYERS: Layers = {
    "classification": {"scores": "classifier"},
    "multiple_choice": {"scores": "classifier"},
    "tagging": {"scores": "classifier"},
    "question_answering": {"scores": "qa_outputs"},
}
"""The layers of those heads, as BERT and ALBERT have them."""


@dataclass(frozen=True)
class Heads:
    """The heads of a family, as a `Field`: our `heads`, `num_classes` and `head_dropout_rate`."""

    layers: Layers
    """Of pretraining, and of `TASK_LAYERS`."""
    classes: Classes
    """The first whose heads a model has is the one that is written."""
    dropout: str = "classifier_dropout"
    """The field of dropout in a task's head."""
    default: float | None = None
    """The dropout where that field is missing; None: hidden_dropout_prob."""
    undropped: tuple[str, ...] = ()
    """Tasks whose heads have no dropout there; ours is kept among `OURS`."""

    @property
    def names(self) -> dict[str, str]:
        """The names of the heads' layers, by our path."""
        return {f"{head}/{ours}": name for head, layers in self.layers.items() for ours, name in layers.items()}

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        """The class in config.json names the task's head; where it does not, the tensors tell."""
        if not self.layers:
            return {}  # the config has no such fields
        heads = tuple(
            head
            for head, layers in self.layers.items()
            if head not in TASK_HEADS and any(has(tensors, f"{name}.") for name in layers.values())
        )
        task = self._task(theirs, tensors)
        # No class has heads of both kinds. Unless its class is named, a task's head beside one of pretraining is left
        # over, which the error lists.
        if task is None or (heads and not self._is_named(theirs, task)):
            return {"heads": heads}
        rate = theirs.get(self.dropout)
        if task in self.undropped:
            rate = our_fields(theirs).get("head_dropout_rate", 0.0)
        elif rate is None:
            rate = theirs.get("hidden_dropout_prob", 0.1) if self.default is None else self.default
        fields = {"heads": (task,), "head_dropout_rate": rate}
        if task in ("classification", "tagging"):
            fields["num_classes"] = len(tensors[f"{self.layers[task]['scores']}.weight"])
        return fields

    def write(self, config: ModelConfig, family: str) -> dict[str, Any]:
        heads, task = set(config.heads), task_of(config)
        if task is not None and (task,) not in self.classes:
            raise InputError(
                f"heads={config.heads} has no class among Transformers' {family} models; export is not possible"
            )
        written = {"architectures": [family + next(end for of, end in self.classes.items() if heads >= set(of))]}
        if task is None:
            return written
        written[self.dropout] = config.head_dropout_rate
        if task in ("classification", "tagging"):
            names = {index: f"LABEL_{index}" for index in range(config.num_classes)}
            written |= {"id2label": names, "label2id": {name: index for index, name in names.items()}}
            if config.num_classes == 1:
                written["problem_type"] = "regression"
        return written

    def _task(self, theirs: dict[str, Any], tensors: Tensors) -> str | None:
        """The task whose layers are all there, the most of them; of several the one that is named, or a likely one."""
        layers = {head: names.values() for head, names in self.layers.items() if head in TASK_HEADS}
        fitting = [task for task in layers if all(f"{name}.weight" in tensors for name in layers[task])]
        most = max((len(layers[task]) for task in fitting), default=0)
        fitting = [task for task in fitting if len(layers[task]) == most]
        for task in fitting:
            if self._is_named(theirs, task):
                return task
        # Tasks on whole rows come with a pooler or a dense layer.
        by_token = "tagging" in fitting and not any(".pooler." in name for name in tensors)
        return "tagging" if by_token else next(iter(fitting), None)

    def _is_named(self, theirs: dict[str, Any], task: str) -> bool:
        return class_of(theirs).endswith(self.classes[(task,)])


def task_of(config: ModelConfig) -> str | None:
    """The task whose head the model has; `InputError` where it has another head too, which no class of theirs has."""
    tasks = [head for head in config.heads if head in TASK_HEADS]
    if tasks and len(config.heads) > 1:
        raise InputError(
            f"heads={config.heads} have no class in Transformers together; export a model with {tasks[0]!r} alone"
        )
    return tasks[0] if tasks else None


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
    """The published models' special ids, which hold where a config.json does not name them."""
    fits: Callable[[Any, Tokenizer | None], bool] = lambda config, tokenizer: True
    """Which models (config, tokenizer) are written as this one, of several families with one config."""
    prefix: str = ""
    """Of the tensors below the heads, which a model without a head leaves out."""
    body: tuple[str, ...] = ()
    """What the names of those tensors begin with after the prefix."""
    constants: tuple[str, ...] = ()
    """How the names of tensors end that are not parameters."""

    def import_config(self, theirs: dict[str, Any], tensors: Tensors, **fields: Any) -> Any:
        """The architecture that a config.json and its canonical tensors describe, with `fields` that are known already.
        Raises `InputError` for what we do not have."""
        for entry in (*self.fields, self.heads):
            fields = entry.read(theirs, tensors) | fields
        return self.config(**checked_fields(self.config, fields))

    def export_config(self, config: Any, vocabulary: Vocabulary | None) -> dict[str, Any]:
        """The config.json of an architecture. Raises `InputError` for what it cannot express."""
        written = {"model_type": self.model_type, "tie_word_embeddings": config.tied}
        for entry in (*self.fields, self.heads):
            written |= entry.write(config, self.name)
        return written | self.special_ids(config, vocabulary)

    def special_ids(self, config: Any, vocabulary: Vocabulary | None) -> dict[str, Any]:
        """The special ids in a config.json: the vocabulary's, or the published ones without any."""
        return special_ids(vocabulary, **self.ids)

    def reads(self, tensors: Tensors) -> bool:
        """Whether a model of this type with these tensors is one of this family, where several have one type."""
        return True

    @abstractmethod
    def names(self, config: Any) -> Names:
        """The names of every parameter of an architecture, and maybe of further ones."""

    def canonical_tensors(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
        """Their tensors under the names of `names`, each value once."""
        alone = not has(tensors, f"{self.prefix}.")
        return {
            f"{self.prefix}.{name}" if alone and name.split(".")[0] in self.body else name: value
            for name, value in tensors.items()
            if not name.endswith(self.constants)
        }

    def further_tensors(self, config: Any, tensors: Tensors) -> dict[str, np.ndarray]:
        """What Transformers reads besides the canonical tensors of an architecture, or in another shape."""
        return {}

    def image_processor(self, config: Any) -> dict[str, Any]:
        """The preprocessor_config.json of the published models, for pictures of the config's size and channels; empty
        where none are read."""
        return {}


def checked_fields(config: type, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config, as they were read; `InputError` for a value of another type."""
    types = get_type_hints(config)
    for name, value in fields.items():
        options = () if get_origin(types[name]) is tuple else get_args(types[name])
        allowed = {*options, types[name]} & {bool, int, float, type(None)}
        allowed |= {int} if float in allowed else set()
        if is_dataclass(value):
            continue  # one of ours, made of what was read
        if isinstance(value, list | dict) or (allowed and type(value) not in allowed):
            raise InputError(f"config.json gives {name} the value {value!r:.99}; it is damaged: fetch it again")
    return fields


def class_of(theirs: dict[str, Any]) -> str:
    """The class that a config.json names; empty where it names none."""
    named = theirs.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def our_fields(theirs: dict[str, Any]) -> dict[str, Any]:
    """The fields that an export of ours keeps in a config.json for itself."""
    fields = theirs.get(OURS)
    items = fields.items() if isinstance(fields, dict) else ()
    return {name: value for name, value in items if value is None or isinstance(value, int | float)}


def is_tied(theirs: dict[str, Any]) -> bool:
    """Whether a config.json ties the output to the token embedding."""
    return theirs.get("tie_word_embeddings") is not False


def check_exportable(family: str, name: str, value: Any, *allowed: Any) -> None:
    """Raises `InputError` where the value of a field of ours is not one that Hugging Face's `family` has."""
    if value not in allowed:
        raise InputError(
            f"{name}={value!r} has no place in Hugging Face's {family}, which takes {' or '.join(map(str, allowed))}; "
            "export is not possible"
        )


def refuse(theirs: dict[str, Any], **expected: Any) -> None:
    """Raises `InputError` where a field is there and has another value than the expected one."""
    for name, value in expected.items():
        if theirs.get(name) not in (None, value):
            raise InputError(
                f"{name}={theirs[name]} in config.json is not one that we have; choose a model with {name}={value}"
            )


def check_output(tensors: Tensors, tied: bool) -> None:
    """Raises `InputError` where the output is not tied and has no kernel."""
    if not tied and OUTPUT not in tensors:
        raise InputError(
            f"the checkpoint has no {OUTPUT}, though tie_word_embeddings=false in config.json says that its output is "
            "no embedding; save it from the class that has the language model's head"
        )
