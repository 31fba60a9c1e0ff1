"""Linformer base (Wang et al. 2020, section 5.1): RoBERTa's objective and size, 256 sums of keys and of values.

    python -m t5x_lite train configs/linformer_base.py

Rows of 512, one projection for all layers, 250,000 steps; the paper does not say its batch and learning rate, which are
those of configs/roberta_base.py here, and so are the data. It needs accelerators and has not been run to its end by us.
To try it on a laptop: add `--text any_text.txt --steps 3 --batch-size 2 --precision.compute float32`.
"""

from dataclasses import replace

from roberta_base import experiment as base

from t5x_lite.models import Linformer

experiment = replace(
    base,
    model=replace(base.model, attention=Linformer(projected_length=256)),
    optimizer=replace(base.optimizer, schedule=replace(base.optimizer.schedule, total_steps=250_000)),
    steps=250_000,
)
