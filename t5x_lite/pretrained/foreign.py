"""The experiment of a model that came without one, such as a Hugging Face folder."""

from t5x_lite.data import Data
from t5x_lite.models import ModelConfig
from t5x_lite.objectives import (
    BartDenoising,
    CausalLanguageModel,
    MaskedLanguageModel,
    NextSentencePrediction,
    Objective,
    SentenceOrderPrediction,
    SequenceToSequence,
    SpanCorruption,
)
from t5x_lite.objectives.base import NoObjective
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.training.experiment import Experiment


def experiment_for(model: ModelConfig, data: Data) -> Experiment:
    """A run of the model before its first step, with the objective of `objective_for`."""
    return Experiment(model, objective_for(model), data, Adafactor(), steps=1, batch_size=8)


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
        case "sequence to sequence":
            return SequenceToSequence(length, length)
    return NoObjective()
