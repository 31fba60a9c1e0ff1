"""T5's baseline with dropped tokens (Raffel et al. 2020, table 3): ask for 15 % of the tokens, which are left out.

    python -m t5x_lite train configs/t5_base_drop_tokens.py

The rest is configs/t5_base.py, which says what it needs.
"""

from dataclasses import replace

from t5_base import experiment as base

from t5x_lite.objectives import DropTokens

experiment = replace(base, objective=DropTokens(input_length=512, noise_density=0.15))
