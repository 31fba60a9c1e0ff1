"""The zoo: one file for each published family."""

from t5x_lite.models.base import ModelConfig, abstract_params, num_params
from t5x_lite.models.t5 import PRESETS as T5_PRESETS
from t5x_lite.models.t5 import T5, T5Config

PRESETS: dict[str, ModelConfig] = {**T5_PRESETS}
"""Every published architecture under its public name."""

__all__ = ["PRESETS", "T5", "ModelConfig", "T5Config", "abstract_params", "num_params"]
