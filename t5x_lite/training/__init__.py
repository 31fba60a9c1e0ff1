"""An experiment as one value, its first parameters, and its train and evaluation steps."""

from t5x_lite.metrics.scores import PartMetrics
from t5x_lite.optim.optimizers import ParameterAverage
from t5x_lite.training.experiment import Checkpointing, Evaluation, Experiment, Logging, Precision
from t5x_lite.training.step import Program, TrainState
from t5x_lite.training.writers import Csv, TensorBoard, WeightsAndBiases, Writer

__all__ = [
    "Checkpointing",
    "Csv",
    "Evaluation",
    "Experiment",
    "Logging",
    "ParameterAverage",
    "PartMetrics",
    "Precision",
    "Program",
    "TensorBoard",
    "TrainState",
    "WeightsAndBiases",
    "Writer",
]
