"""CLIP with a ResNet-50 (Radford et al. 2021, section 2.5 and tables 18 and 19): 32 epochs of 400 million pairs.

    python -m t5x_lite train configs/clip_rn50.py
    python -m t5x_lite plan configs/clip_rn50.py --topology v5p:4x4x4

configs/clip_b32.py says what it needs. The ResNet is that of He et al. 2019 with attention at its end; it is
normalized over the batch of all devices. Adam has b2 = 0.999 and epsilon = 1e-8 here (table 18). The authors report
59.6 % on ImageNet without its labels (table 11). We have not run it.
"""

from dataclasses import replace

from clip_b32 import experiment as base

from t5x_lite.models import PRESETS

experiment = replace(base, model=PRESETS["clip-rn50"], optimizer=replace(base.optimizer, b2=0.999, eps=1e-8))
