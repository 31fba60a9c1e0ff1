"""T5's baseline with MASS-style denoising (Raffel et al. 2020, table 3): restore 15 % masked tokens.

    python -m t5x_lite train configs/t5_base_mass_style.py

The rest is configs/t5_base.py, which says what it needs.
"""

from dataclasses import replace

from t5_base import experiment as base

from t5x_lite.objectives import MassStyleDenoising

experiment = replace(base, objective=MassStyleDenoising(input_length=512, noise_density=0.15))
