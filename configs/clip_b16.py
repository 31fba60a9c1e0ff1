"""CLIP with ViT-B/16 (Radford et al. 2021, section 2.5 and tables 18 and 20): 32 epochs of 400 million pairs.

    python -m t5x_lite train configs/clip_b16.py
    python -m t5x_lite plan configs/clip_b16.py --topology v5p:4x4x4

configs/clip_b32.py says what it needs; patches are of 16 x 16 pixels, four times as many. The authors report 68.3 % on
ImageNet without its labels (table 11). We have not run it.
"""

from dataclasses import replace

from clip_b32 import experiment as base

from t5x_lite.models import PRESETS

experiment = replace(base, model=PRESETS["clip-b-16"])
