"""T5 v1.1 base: gated GELU, untied, no dropout in pretraining, z-loss; C4, 2048 rows of 512 tokens.

    python -m t5x_lite train configs/t5_v1_1_base.py

The rest is configs/t5_base.py, which says what it needs. Cut the batch up with `--accumulation` where memory is short.
"""

from dataclasses import replace

from t5_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.objectives import SpanCorruption

experiment = replace(
    base,
    model=replace(PRESETS["t5-v1_1-base"], dropout_rate=0.0),
    objective=SpanCorruption(input_length=512, z_loss=1e-4),
    batch_size=2048,
    remat="dots",
)
