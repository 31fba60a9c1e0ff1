"""ELECTRA small (Clark et al. 2020, table 6): generator of a quarter, 1,000,000 steps of 128 rows of 128.

    python -m t5x_lite train configs/electra_small.py

configs/bert_base.py says what it needs. `convert` exports the discriminator; `--part generator` the generator.
"""

from dataclasses import replace

from bert_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.objectives import ReplacedTokenDetection
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay

experiment = replace(
    base,
    model=PRESETS["electra-small"],
    objective=ReplacedTokenDetection(input_length=128, input_format="segment-pair"),
    optimizer=AdamW(LinearDecay(peak=5e-4, warmup_steps=10_000, total_steps=1_000_000), clip_norm=1.0),
    steps=1_000_000,
    batch_size=128,
)
