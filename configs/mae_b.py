"""MAE base, pretrained on ImageNet-1k's pictures without their labels (He et al. 2022, table 8): 800 epochs.

    python -m t5x_lite train configs/mae_b.py
    python -m t5x_lite train configs/mae_b_finetune.py         # or mae_b_linear_probe.py

4,096 pictures a batch at 1.5e-4 for every 256 of them, which is 2.4e-3; 40 epochs of warmup. Targets are normalized by
patch, as in the authors' commands. It needs accelerators: it has not been run to its end by us. It reads
imagenet/train and imagenet/val, whose folders may be classes.
"""

from dataclasses import replace

from vit_b16 import experiment as base
from vit_b16 import train_pictures

from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import PRESETS
from t5x_lite.objectives import MaskedAutoencoding
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Evaluation

steps = 800 * train_pictures // 4096

experiment = replace(
    base,
    model=PRESETS["mae-b"],
    objective=MaskedAutoencoding(
        Augmentation(image_size=(224, 224), resize=256, area=(0.2, 1.0)),
        canvas_size=(256, 256),
        patch_size=16,
    ),
    optimizer=AdamW(
        CosineDecay(peak=2.4e-3, warmup_steps=40 * train_pictures // 4096, total_steps=steps, floor=0.0),
        b2=0.95,
        eps=1e-8,
        weight_decay=0.05,
    ),
    steps=steps,
    evaluation=Evaluation(every=5000, rows=8192),
)
