"""DeiT-Ti on ImageNet-1k (Touvron et al. 2021, tables 1 and 9): configs/deit_s.py with 5.7 M parameters.

    python -m t5x_lite train configs/deit_ti.py

configs/deit_s.py says what it needs. The authors report 72.2 %. We have not run it.
"""

from dataclasses import replace

from deit_s import experiment as base

from t5x_lite.models import PRESETS

experiment = replace(base, model=replace(PRESETS["deit-ti"], drop_path_rate=0.1))
