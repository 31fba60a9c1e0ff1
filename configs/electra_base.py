"""ELECTRA base (Clark et al. 2020, table 6): generator of a third, 766,000 steps of 256 rows of 512.

    python -m t5x_lite train configs/electra_base.py

The rest is configs/electra_small.py.
"""

from dataclasses import replace

from electra_small import experiment as small

from t5x_lite.models import PRESETS
from t5x_lite.optim.schedules import LinearDecay

experiment = replace(
    small,
    model=PRESETS["electra-base"],
    objective=replace(small.objective, input_length=512),
    optimizer=replace(small.optimizer, schedule=LinearDecay(peak=2e-4, warmup_steps=10_000, total_steps=766_000)),
    steps=766_000,
    batch_size=256,
)
