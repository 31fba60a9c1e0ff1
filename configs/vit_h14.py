"""ViT-H/14 on ImageNet-1k (Dosovitskiy et al. 2021, section 3.1 and table 3): 300 epochs, 4,096 pictures a batch.

    python -m t5x_lite train configs/vit_h14.py
    python -m t5x_lite plan configs/vit_h14.py --topology v5e:8x8

The table's row of ImageNet, which is for all sizes. The authors train H/14 on JFT-300M, which nobody but Google has,
and on ImageNet-21k, for which the table has no row of this size; they report no figure for ImageNet-1k alone.
configs/deit3_h.py and mae_h.py are better recipes for it. The rest is configs/vit_b16.py, which says what it needs.
"""

from dataclasses import replace

from vit_b16 import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=replace(PRESETS["vit-h-14"], pooler=True, dropout_rate=0.1),
    remat="dots",
    accumulation=2,
    mesh=MeshShape(data=-1, fsdp=16),
)
