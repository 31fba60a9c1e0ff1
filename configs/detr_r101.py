"""DETR with a ResNet-101 (Carion et al. 2020, section 4): 300 epochs of COCO.

    python -m t5x_lite train configs/detr_r101.py
    python -m t5x_lite plan configs/detr_r101.py --topology v5p:2x2x4

configs/detr_r50.py says what it needs. The authors report an AP of 43.5 on val2017 after 500 epochs (table 1). We have
not run it.
"""

from dataclasses import replace

from detr_r50 import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.training.initialization import FromModel

experiment = replace(base, model=PRESETS["detr-resnet-101"], start=FromModel("microsoft/resnet-101"))
