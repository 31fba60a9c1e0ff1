"""DETR-DC5 with a ResNet-101 (Carion et al. 2020, section 4): the last stage dilated, 300 epochs of COCO.

    python -m t5x_lite train configs/detr_r101_dc5.py
    python -m t5x_lite plan configs/detr_r101_dc5.py --topology v5p:2x2x4

configs/detr_r50.py says what it needs. The feature map has four times as many positions, for small objects. The authors
report an AP of 44.9 on val2017 after 500 epochs (table 1). We have not run it.
"""

from dataclasses import replace

from detr_r50 import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.training.initialization import FromModel

experiment = replace(base, model=PRESETS["detr-resnet-101-dc5"], start=FromModel("microsoft/resnet-101"))
