"""BERT base, the last tenth: goes on from configs/bert_base.py with rows of 512 up to step 1,000,000.

    python -m t5x_lite train configs/bert_base_512.py

Parameters, optimizer, learning rate and step are those in which `runs/bert_base` ended; another folder:
`--start.folder`. configs/bert_base.py says what the two need.
"""

from dataclasses import replace

from bert_base import experiment as first

from t5x_lite.training.initialization import FromRun

experiment = replace(
    first,
    objective=replace(first.objective, input_length=512),
    steps=1_000_000,
    start=FromRun("runs/bert_base"),
)
