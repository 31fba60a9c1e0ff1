"""BERT large (Devlin et al. 2019), first nine tenths on rows of 128.

    python -m t5x_lite train configs/bert_large.py
    python -m t5x_lite train configs/bert_large_512.py     # the last tenth, on rows of 512

The rest is configs/bert_base.py, which says what it needs.
"""

from dataclasses import replace

from bert_base import experiment as base

from t5x_lite.models import PRESETS

experiment = replace(base, model=replace(PRESETS["bert-large-uncased"], heads=base.model.heads), remat="dots")
