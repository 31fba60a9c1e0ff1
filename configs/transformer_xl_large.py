"""Transformer-XL large on WikiText-103 (Dai et al. 2019, table 1 and their script): 4,000,000 steps of 128 rows of 384.

    python -m t5x_lite train configs/transformer_xl_large.py
    python -m t5x_lite plan configs/transformer_xl_large.py --topology v5p:2x2x2
    python -m t5x_lite evaluate runs/transformer_xl_large --memory-length 1600

The paper reports a test perplexity of 18.3 with a memory of 1,600. The rest is configs/transformer_xl_base.py, which
says what it needs.
"""

from dataclasses import replace

from transformer_xl_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.objectives import SegmentLanguageModel
from t5x_lite.optim.schedules import CosineDecay

experiment = replace(
    base,
    model=PRESETS["transfo-xl-wt103"],
    objective=SegmentLanguageModel(384, memory_length=384, evaluation_memory_length=1600, same_length=True),
    optimizer=replace(base.optimizer, schedule=CosineDecay(peak=2.5e-4, warmup_steps=16_000, total_steps=4_000_000)),
    steps=4_000_000,
    batch_size=128,
)
