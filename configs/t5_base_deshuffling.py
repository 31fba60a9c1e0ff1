"""T5's baseline with deshuffling (Raffel et al. 2020, table 3): put the tokens of a text back in order.

    python -m t5x_lite train configs/t5_base_deshuffling.py

The rest is configs/t5_base.py, which says what it needs.
"""

from dataclasses import replace

from t5_base import experiment as base

from t5x_lite.objectives import Deshuffling

experiment = replace(base, objective=Deshuffling(input_length=512))
