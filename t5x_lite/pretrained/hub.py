"""A model on the Hugging Face hub: its card, made from the run, and the upload."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

import t5x_lite
from t5x_lite.errors import InputError
from t5x_lite.training.experiment import flat_fields

if TYPE_CHECKING:
    from t5x_lite.models.electra import Part
    from t5x_lite.pretrained.base import Pretrained

_PIPELINES = {"encoder": "feature-extraction", "decoder": "text-generation", "encoder-decoder": "text-generation"}
_OF_HEADS = {
    "masked_lm": "fill-mask",
    "classification": "text-classification",
    "tagging": "token-classification",
    "question_answering": "question-answering",
    "multiple_choice": "multiple-choice",
}


def model_card(model: "Pretrained", name: str, *, license: str = "", held_out: Mapping[str, Any] | None = None) -> str:
    """The text of a README.md: what the model is, how it is opened, what it was trained on and by, and its figures.

    Args:
      model: what is described; without its run the card says what its config says.
      name: the model's, such as `user/model`.
      license: as the hub names licenses, such as `apache-2.0`; empty: the card names none.
      held_out: the figures of an evaluation.
    """
    from huggingface_hub import ModelCardData

    config, experiment = model.config, model.experiment
    family = type(config).__name__.removesuffix("Config")
    heads = getattr(config, "heads", ())
    pipeline = next((_OF_HEADS[head] for head in heads if head in _OF_HEADS), _PIPELINES.get(config.architecture))
    if config.architecture == "images":
        pipeline = "image-classification" if heads else "image-feature-extraction"
    tags = ["t5x_lite", "jax", family.lower()]
    data = ModelCardData(library_name="t5x_lite", license=license or None, pipeline_tag=pipeline, tags=tags)
    count = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    lines = [
        "---",
        data.to_yaml(),
        "---",
        "",
        f"# {name}",
        "",
        f"A {family} with {count:,} parameters, trained with t5x_lite {t5x_lite.__version__}.",
        "",
        "```python",
        "import t5x_lite",
        "",
        f'model = t5x_lite.load("{name}")',
        f"{', '.join(f'model.{ability}' for ability in model.abilities)}",
        "```",
    ]
    if held_out:
        figures = {key: value for key, value in held_out.items() if isinstance(value, int | float)}
        lines += ["", "## Held-out figures", "", "| figure | value |", "| --- | ---: |"]
        lines += [f"| {key.replace('_', ' ').replace('|', ' ')} | {value:,.4g} |" for key, value in figures.items()]
    if experiment is not None:
        fields = dict(flat_fields(experiment))
        shown = [
            *("objective", "data.source", "data.tokenizer", "optimizer", "optimizer.schedule"),
            *("steps", "batch_size", "seed", "precision.compute"),
        ]
        lines += ["", "## Training", "", "| field | value |", "| --- | --- |"]
        lines += [f"| {key} | {str(fields[key]).replace('|', ' ')} |" for key in shown if key in fields]
        whole = json.dumps(json.loads(experiment.to_json()), indent=1)
        lines += ["", "<details><summary>The whole experiment</summary>", "", "```json", whole, "```", "", "</details>"]
    return "\n".join(lines) + "\n"


def push(
    model: "Pretrained",
    repo_id: str,
    *,
    part: "Part | None" = None,
    dtype: Any = None,
    private: bool | None = None,
    license: str = "",
    held_out: Mapping[str, Any] | None = None,
) -> str:
    """What `Pretrained.push_to_hub` documents."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        model.export(folder, part=part, dtype=dtype)
        card = model_card(model, repo_id, license=license, held_out=held_out)
        (folder / "README.md").write_text(card, encoding="utf-8")
        api = HfApi(library_name="t5x_lite", library_version=t5x_lite.__version__)
        try:
            url = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload by t5x_lite")
        except (HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OSError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"{repo_id} cannot be written on the hub ({reason}); log in by `hf auth login` and name a repository "
                "of yours as user/name"
            ) from None
    return str(url)
