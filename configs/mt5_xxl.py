"""mT5 XXL (Xue et al. 2021): T5 v1.1 over 101 languages, 10^6 steps of 1024 x 1024 tokens.

    python -m t5x_lite train configs/mt5_xxl.py

The rest is configs/mt5_small.py, which says what it needs.
"""

from dataclasses import replace

from mt5_small import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=replace(PRESETS["mt5-xxl"], dropout_rate=0.0),
    remat="full",
    mesh=MeshShape(data=1, fsdp=-1),
)
