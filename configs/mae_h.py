"""MAE huge, pretrained on ImageNet-1k's pictures (He et al. 2022, table 8): 800 epochs, patches of 14 x 14 pixels.

    python -m t5x_lite train configs/mae_h.py
    python -m t5x_lite plan configs/mae_h.py --topology v5e:8x8
    python -m t5x_lite train configs/mae_h_finetune.py

After pretraining of 1,600 epochs and fine-tuning the authors report 86.9 % in their table 3. It needs accelerators: it
has not been run to its end by us. The rest is configs/mae_b.py.
"""

from dataclasses import replace

from mae_b import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=PRESETS["mae-h"],
    objective=replace(base.objective, patch_size=14),
    remat="dots",
    mesh=MeshShape(data=-1, fsdp=16),
)
