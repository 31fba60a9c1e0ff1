"""XLNet large (Yang et al. 2019, table 7): 500,000 steps of 8,192 rows of 512, partial prediction with K = 6.

    python -m t5x_lite train configs/xlnet_large.py
    python -m t5x_lite plan configs/xlnet_large.py --topology v5p:4x4x4

The paper's 126 GB are BooksCorpus, Wikipedia, Giga5, ClueWeb and Common Crawl. The rest is configs/xlnet_base.py, which
says what stands for them and what it needs.
"""

from dataclasses import replace

from xlnet_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=replace(PRESETS["xlnet-large-cased"], heads=("permutation_lm",)),
    optimizer=replace(base.optimizer, schedule=LinearDecay(peak=4e-4, warmup_steps=40_000, total_steps=500_000)),
    steps=500_000,
    batch_size=8192,
    accumulation=4,
    mesh=MeshShape(data=1, fsdp=-1),
    remat="dots",
)
