"""T5's baseline as a prefix language model (Raffel et al. 2020, table 3): go on from a random place of a text.

    python -m t5x_lite train configs/t5_base_prefix_lm.py

The rest is configs/t5_base.py, which says what it needs.
"""

from dataclasses import replace

from t5_base import experiment as base

from t5x_lite.objectives import PrefixLanguageModel

experiment = replace(base, objective=PrefixLanguageModel(input_length=512))
