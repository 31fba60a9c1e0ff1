"""The experiment of a model that came without one, such as a Hugging Face folder."""

import json
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from t5x_lite.convert.huggingface import default_processor
from t5x_lite.data import Data
from t5x_lite.errors import InputError
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.images.preparation import read_processor
from t5x_lite.models import ModelConfig
from t5x_lite.models.zero_shot import ZeroShotConfig
from t5x_lite.objectives import (
    BartDenoising,
    BidirectionalLanguageModel,
    CausalLanguageModel,
    MaskedLanguageModel,
    NextSentencePrediction,
    Objective,
    PermutationLanguageModel,
    SentenceOrderPrediction,
    SequenceToSequence,
    SpanCorruption,
)
from t5x_lite.objectives.base import NoObjective
from t5x_lite.objectives.image_classification import PreparedImageClassification
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.pretrained.image_texts import PHOTO, PretrainedImageText
from t5x_lite.runs.open_model import OpenedModel
from t5x_lite.training.experiment import Experiment


def experiment_for(model: ModelConfig, data: Data) -> Experiment:
    """A run of the model before its first step, with the objective of `objective_for`."""
    return Experiment(model, objective_for(model), data, Adafactor(), steps=1, batch_size=8)


def image_experiment_for(opened: OpenedModel, name: str, data: Data) -> Experiment:
    """The evaluation of a classifier of pictures, prepared as its preprocessor_config.json says; `InputError` for a
    model that is none."""
    config = opened.config
    if not hasattr(config, "num_channels") or "classification" not in getattr(config, "heads", ()):
        raise InputError(
            f"{name} is a {type(config).__name__} that does not classify pictures; choose a ViT, DeiT or ResNet with a "
            "head for classification"
        )
    is_multi_label = opened.origin is not None and opened.origin.has_independent_classes
    return _classification(config, default_processor(config, opened.origin), is_multi_label, name, data)


def zero_shot_experiment(
    model: PretrainedImageText, name: str, data: Data, templates: Sequence[str] = PHOTO
) -> tuple[Experiment, Any]:
    """(the evaluation of a model of pictures and texts as a classifier that knows the classes of some data by their
    names alone, its parameters). Raises `InputError` for templates without `{}`, and names that are too long.

    Args:
      templates: see `PretrainedImageText.class_vectors`.
    """
    classes = model.class_vectors(data.source.read_classes(), templates=templates)
    config = ZeroShotConfig(model.config, len(classes))
    processor = model.preparation.processor
    experiment = _classification(config, processor, model.config.independent_pairs, name, data)
    return experiment, {"base": model.params, "classes": jnp.asarray(classes.T)}


def _classification(
    config: ModelConfig, processor: dict[str, Any], is_multi_label: bool, name: str, data: Data
) -> Experiment:
    """The evaluation of a classifier whose pictures a preprocessor_config.json prepares."""
    size = read_processor(processor, config.num_channels).image_size
    if size is None:
        raise InputError(
            f"preprocessor_config.json of {name} leaves pictures their sides (size={processor.get('size')}), and those "
            "of a batch have one size; set do_center_crop and crop_size there"
        )
    objective = PreparedImageClassification(
        Augmentation(image_size=size),
        canvas_size=size,
        num_channels=config.num_channels,
        loss_type="bce" if is_multi_label else "softmax",
        processor=json.dumps(processor),
    )
    return Experiment(config, objective, data, Adafactor(), steps=1, batch_size=64)


def objective_for(model: ModelConfig) -> Objective:
    """The objective that the model was made with, or that trains its heads; those of tasks need data."""
    longest = getattr(model, "max_length", None) or 1024
    length = min(512, longest)
    by_length = {
        "denoising": BartDenoising,
        "masked language model": MaskedLanguageModel,
        "masked language model, next sentence": NextSentencePrediction,
        "masked language model, sentence order": SentenceOrderPrediction,
    }
    if model.pretraining in by_length:
        return by_length[model.pretraining](length)
    match model.pretraining:
        case "span corruption":
            return SpanCorruption()
        case "causal language model":
            return CausalLanguageModel(min(1024, longest))
        case "permutation language model":
            return PermutationLanguageModel(length, length // 2)
        case "bidirectional language model":
            return BidirectionalLanguageModel()
        case "sequence to sequence":
            return SequenceToSequence(length, length)
    return NoObjective()
