"""The Transformer of Vaswani et al. 2017, big, on WMT14 English-German: 300,000 steps.

    python -m t5x_lite train configs/transformer_big.py
    python -m t5x_lite average runs/transformer_big --last 20

configs/transformer_base.py says what it needs, and how it is evaluated. The paper averages the last 20 checkpoints of
big, ten minutes or 600 steps apart, and reports 28.4 BLEU of tokens.
"""

from dataclasses import replace

from transformer_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.optim.schedules import InverseSqrt
from t5x_lite.training import Checkpointing

experiment = replace(
    base,
    model=PRESETS["transformer-big-en-de"],
    optimizer=replace(base.optimizer, schedule=InverseSqrt(embed_dim=1024, warmup_steps=4000)),
    steps=300_000,
    checkpoints=Checkpointing(every=600, keep_last=20, keep_best=0),
)
