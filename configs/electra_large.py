"""ELECTRA large (Clark et al. 2020, table 6): generator of a quarter, 1,750,000 steps of 2,048 rows of 512.

    python -m t5x_lite train configs/electra_large.py

A quarter of the tokens is masked. The paper's ELECTRA-400K is the same with 400,000 steps: add `--steps 400000
--optimizer.schedule.total-steps 400000`. The rest is configs/electra_small.py.
"""

from dataclasses import replace

from electra_small import experiment as small

from t5x_lite.models import PRESETS
from t5x_lite.training.schedules import LinearDecay

experiment = replace(
    small,
    model=PRESETS["electra-large"],
    objective=replace(small.objective, input_length=512, mask_rate=0.25),
    optimizer=replace(small.optimizer, schedule=LinearDecay(peak=2e-4, warmup_steps=10_000, total_steps=1_750_000)),
    steps=1_750_000,
    batch_size=2048,
    remat="dots",
)
