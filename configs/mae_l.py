"""MAE large, pretrained on ImageNet-1k's pictures (He et al. 2022, table 8), its default: 800 epochs.

    python -m t5x_lite train configs/mae_l.py
    python -m t5x_lite plan configs/mae_l.py --topology v5e:8x8
    python -m t5x_lite train configs/mae_l_finetune.py

After fine-tuning the authors report 85.4 % in their table 1d, 85.9 % after 1,600 epochs. It needs accelerators: it has
not been run to its end by us. The rest is configs/mae_b.py.
"""

from dataclasses import replace

from mae_b import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(base, model=PRESETS["mae-l"], mesh=MeshShape(data=-1, fsdp=16))
