"""What the classes of Transformers that have the head of a task have in common: their names, layers and fields."""

from typing import Any

from t5x_lite.convert.table import Row, Tensors, dense, has
from t5x_lite.errors import InputError
from t5x_lite.models import ModelConfig

TASK_CLASSES = {
    "classification": "ForSequenceClassification",
    "multiple_choice": "ForMultipleChoice",
    "tagging": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
}
"""How the classes end that have the head of a task. None has another head beside it."""

TASK_LAYERS = {
    "classification": {"scores": "classifier"},
    "multiple_choice": {"scores": "classifier"},
    "tagging": {"scores": "classifier"},
    "question_answering": {"scores": "qa_outputs"},
}
"""The dense layers of those heads, by our name and theirs, as BERT and ALBERT have them."""


def read_heads(
    theirs: dict[str, Any],
    tensors: Tensors,
    starts: dict[str, str],
    layers: dict[str, dict[str, str]],
    dropout: str = "classifier_dropout",
    default: float | None = None,
) -> dict[str, Any]:
    """Our fields of the heads that are there.

    Args:
      starts: what the tensors of each head of pretraining begin with.
      layers: as `TASK_LAYERS`. The class in config.json says which task it is, and where it does not, the tensors.
      dropout: the field of dropout in a task's head.
      default: what silence means there; None: the same as hidden_dropout_prob.
    """
    heads = tuple(head for head, start in starts.items() if has(tensors, start))
    task = _read_task(theirs, tensors, layers)
    # No class of theirs has heads of both kinds: a task's beside those of pretraining are strangers, and are named so.
    if task is None or (heads and not _is_named(theirs, task)):
        return {"heads": heads}
    rate = theirs.get(dropout)
    if rate is None:
        rate = theirs.get("hidden_dropout_prob", 0.1) if default is None else default
    fields = {"heads": (task,), "head_dropout_rate": rate}
    if task in ("classification", "tagging"):
        fields["num_classes"] = len(tensors[f"{layers[task]['scores']}.weight"])
    return fields


def _read_task(theirs: dict[str, Any], tensors: Tensors, layers: dict[str, dict[str, str]]) -> str | None:
    fitting = [task for task, names in layers.items() if all(f"{name}.weight" in tensors for name in names.values())]
    fullest = max((len(layers[task]) for task in fitting), default=0)
    fitting = [task for task in fitting if len(layers[task]) == fullest]
    for task in fitting:
        if _is_named(theirs, task):
            return task
    # Tasks on whole rows come with a pooler where they have no dense layer of their own.
    by_token = "tagging" in fitting and not any(".pooler." in name for name in tensors)
    return "tagging" if by_token else next(iter(fitting), None)


def _is_named(theirs: dict[str, Any], task: str) -> bool:
    """Whether config.json says that the folder is of this task's class."""
    return str((theirs.get("architectures") or [""])[0]).endswith(TASK_CLASSES[task])


def describe_heads(config: ModelConfig, dropout: str = "classifier_dropout") -> dict[str, Any]:
    """What config.json says of a task's head; nothing where there is none."""
    if not (task := task_of(config)):
        return {}
    described = {dropout: config.head_dropout_rate}
    if task in ("classification", "tagging"):
        names = {index: f"LABEL_{index}" for index in range(config.num_classes)}
        described |= {"id2label": names, "label2id": {name: index for index, name in names.items()}}
        if config.num_classes == 1:
            described["problem_type"] = "regression"
    return described


def task_of(config: ModelConfig) -> str | None:
    """The task whose head the encoder has; `InputError` where it has another head too, which no class of theirs has."""
    tasks = [head for head in config.heads if head in TASK_CLASSES]
    if tasks and len(config.heads) > 1:
        raise InputError(
            f"heads={config.heads} have no class in Transformers together; export a model with {tasks[0]!r} alone"
        )
    return tasks[0] if tasks else None


def task_rows(config: ModelConfig, layers: dict[str, dict[str, str]] = TASK_LAYERS) -> list[Row]:
    """The parameters of a task's head."""
    task = task_of(config)
    names = layers[task] if task else {}
    return [row for ours, theirs in names.items() for row in dense(theirs, f"{task}/{ours}")]
