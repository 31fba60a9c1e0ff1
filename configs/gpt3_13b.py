"""GPT-3 13B (Brown et al. 2020, tables 2.1 and 2.2, appendix B): 300 billion tokens, 1,024 rows of 2,048 a batch.

    python -m t5x_lite train configs/gpt3_13b.py

A batch of 2.1 million tokens where the paper says 2 million, and a rate of 1e-4. The rest is configs/gpt3_175b.py,
which says what it needs.
"""

from dataclasses import replace

from gpt3_175b import experiment as largest

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape
from t5x_lite.training.schedules import CosineDecay

tokens = 1024 * 2048

experiment = replace(
    largest,
    model=replace(PRESETS["gpt3-13b"], vocab_size=50_304),
    optimizer=replace(
        largest.optimizer,
        schedule=CosineDecay(
            peak=1e-4,
            warmup_steps=round(375e6 / tokens),
            total_steps=round(260e9 / tokens),
            floor=0.1,
        ),
    ),
    steps=round(300e9 / tokens),
    batch_size=1024,
    mesh=MeshShape(data=1, fsdp=-1),
)
