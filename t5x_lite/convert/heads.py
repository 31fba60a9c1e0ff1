"""The heads of Hugging Face's models: their layers, the classes that have them, and what config.json says of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from t5x_lite.convert.table import Row, Tensors, dense, has, norm
from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig
from t5x_lite.models.task_heads import TASK_HEADS

TASK_CLASSES = {
    ("classification",): "ForSequenceClassification",
    ("multiple_choice",): "ForMultipleChoice",
    ("tagging",): "ForTokenClassification",
    ("question_answering",): "ForQuestionAnswering",
}
"""How the classes end that have the head of a task. None has another head beside it."""
TASK_LAYERS = {
    "classification": {"scores": "classifier"},
    "multiple_choice": {"scores": "classifier"},
    "tagging": {"scores": "classifier"},
    "question_answering": {"scores": "qa_outputs"},
}
"""The dense layers of those heads, by our name and theirs, as BERT and ALBERT have them."""


@dataclass(frozen=True)
class Heads:
    """The heads of a family, as a `Field`: our `heads`, `num_classes` and `head_dropout_rate`."""

    layers: Mapping[str, Mapping[str, str]]
    """Of each head the layers, by our name and theirs: those of pretraining, and those of `TASK_LAYERS`."""
    classes: Mapping[tuple[str, ...], str]
    """How the class ends that has these heads: the first whose heads a model has is the one that is written."""
    dropout: str = "classifier_dropout"
    """The field of dropout in a task's head."""
    default: float | None = None
    """What silence means there; None: the same as hidden_dropout_prob."""

    def read(self, theirs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
        """The class in config.json says which task's head it is, and where it does not, the tensors."""
        if not self.layers:
            return {}  # and no fields of ours
        pretraining = {head: layers for head, layers in self.layers.items() if head not in TASK_HEADS}
        heads = tuple(
            head for head, layers in pretraining.items() if any(has(tensors, f"{name}.") for name in layers.values())
        )
        task = self._task(theirs, tensors)
        # No class of theirs has heads of both kinds: a task's beside those of pretraining are strangers, and are named
        # so.
        if task is None or (heads and not self._is_named(theirs, task)):
            return {"heads": heads}
        fields = {"heads": (task,), "head_dropout_rate": self.dropout_rate(theirs, task)}
        if task in ("classification", "tagging"):
            fields["num_classes"] = len(tensors[f"{self.layers[task]['scores']}.weight"])
        return fields

    def dropout_rate(self, theirs: dict[str, Any], task: str) -> float:
        """Of a task's head."""
        rate = theirs.get(self.dropout)
        if rate is None:
            return theirs.get("hidden_dropout_prob", 0.1) if self.default is None else self.default
        return rate

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

    def rows(self, config: ModelConfig) -> list[Row]:
        """The parameters of a model's heads."""
        table = []
        for head, layers in self.layers.items():
            for ours, theirs in layers.items() if head in config.heads else ():
                table += (norm if ours.endswith("norm") else dense)(theirs, f"{head}/{ours}")
        return table

    def _task(self, theirs: dict[str, Any], tensors: Tensors) -> str | None:
        tasks = {task: layers for task, layers in self.layers.items() if task in TASK_HEADS}
        fitting = [
            task for task, layers in tasks.items() if all(f"{name}.weight" in tensors for name in layers.values())
        ]
        fullest = max((len(tasks[task]) for task in fitting), default=0)
        fitting = [task for task in fitting if len(tasks[task]) == fullest]
        for task in fitting:
            if self._is_named(theirs, task):
                return task
        # Tasks on whole rows come with a pooler where they have no dense layer of their own.
        by_token = "tagging" in fitting and not any(".pooler." in name for name in tensors)
        return "tagging" if by_token else next(iter(fitting), None)

    def _is_named(self, theirs: dict[str, Any], task: str) -> bool:
        """Whether config.json says that the folder is of this task's class."""
        return str((theirs.get("architectures") or [""])[0]).endswith(self.classes[(task,)])


def task_of(config: ModelConfig) -> str | None:
    """The task whose head the model has; `InputError` where it has another head too, which no class of theirs has."""
    tasks = [head for head in config.heads if head in TASK_HEADS]
    if tasks and len(config.heads) > 1:
        raise InputError(
            f"heads={config.heads} have no class in Transformers together; export a model with {tasks[0]!r} alone"
        )
    return tasks[0] if tasks else None
