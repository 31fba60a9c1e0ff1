"""T5 11B (Raffel et al. 2020, section 3.7): C4, 10^6 steps of 2,048 rows of 512 tokens.

    python -m t5x_lite train configs/t5_11b.py

The paper mixes its supervised tasks into the text; here it is the text alone, as for T5 v1.1. The rest is
configs/t5_base.py, which says what it needs.
"""

from dataclasses import replace

from t5_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=PRESETS["t5-11b"],
    steps=1_000_000,
    batch_size=2048,
    remat="full",
    mesh=MeshShape(data=1, fsdp=-1),
)
