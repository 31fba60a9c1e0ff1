"""BART base, the last tenth: goes on from configs/bart_base.py without dropout up to step 500,000.

    python -m t5x_lite train configs/bart_base_without_dropout.py

Parameters, optimizer, learning rate and step are those in which `runs/bart_base` ended; another folder:
`--start.folder`.
"""

from dataclasses import replace

from bart_base import experiment as first

from t5x_lite.training.initialization import FromRun

experiment = replace(
    first,
    model=replace(first.model, dropout_rate=0.0, attention_dropout_rate=0.0),
    steps=500_000,
    start=FromRun("runs/bart_base"),
)
