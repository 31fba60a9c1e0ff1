"""BERT large, the last tenth: goes on from configs/bert_large.py with rows of 512 up to step 1,000,000.

    python -m t5x_lite train configs/bert_large_512.py

configs/bert_base_512.py says how, configs/bert_base.py what it needs.
"""

from dataclasses import replace

from bert_large import experiment as first

from t5x_lite.training.initialization import FromRun

experiment = replace(
    first,
    objective=replace(first.objective, input_length=512),
    steps=1_000_000,
    remat="dots",
    start=FromRun("runs/bert_large"),
)
