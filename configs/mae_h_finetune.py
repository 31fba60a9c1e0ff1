"""ViT-H/14 on ImageNet-1k that begins with the encoder of configs/mae_h.py (He et al. 2022, table 9): 50 epochs.

    python -m t5x_lite train configs/mae_h_finetune.py --start.folder facebook/vit-mae-huge

Rate 4e-3 down to 1e-6, a layer's 0.75 of that above it; 0.3 of the branches of the last layer are dropped, as in the
authors' command, where the table has 0.2. The authors report 86.9 % after pretraining of 1,600 epochs. The rest is
configs/mae_b_finetune.py, which says what it needs.
"""

from dataclasses import replace

from mae_l_finetune import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.training.initialization import FromModel

experiment = replace(base, model=replace(PRESETS["vit-h-14"], drop_path_rate=0.3), start=FromModel("runs/mae_h"))
