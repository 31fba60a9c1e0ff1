"""DeiT III, L on ImageNet-1k (Touvron et al. 2022, table 1 and the authors' command): 800 epochs at 192 x 192.

    python -m t5x_lite train configs/deit3_l.py

configs/deit3_b.py says what it needs; this one is larger and drops more branches. After fine-tuning at 224 x 224 the
authors report 84.9 %. We have not run it.
"""

from dataclasses import replace

from deit3_b import SIZE
from deit3_b import experiment as base

from t5x_lite.models import PRESETS

experiment = replace(base, model=replace(PRESETS["deit3-l"], image_size=SIZE))
