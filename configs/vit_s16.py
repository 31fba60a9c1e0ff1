"""ViT-S/16 on ImageNet-1k in 90 epochs by the plain recipe of Beyer et al. 2022 (Better plain ViT baselines).

    python -m t5x_lite train configs/vit_s16.py

Mean of the patches, sines and cosines as positions, RandAugment 2 of 10, mixup 0.2, 1,024 pictures a batch; the rest is
vit_s16_i1k.py of the authors' big_vision. They report 76.7 % with a head of one matrix, as here, and 76.5 % with their
default, which has a hidden layer. It needs accelerators: it has not been run to its end by us. It reads imagenet/train,
of which the authors keep a hundredth aside, and imagenet/val, a folder a class.
"""

from dataclasses import replace

from vit_b16 import experiment as base
from vit_b16 import train_pictures

from t5x_lite.images.mixing import Mixing
from t5x_lite.images.randaugment import RandAugment
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ImageClassification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay

steps = 90 * train_pictures // 1024

experiment = replace(
    base,
    model=replace(PRESETS["vit-s-16"], pooling="mean", positions="sincos"),
    objective=ImageClassification(
        replace(base.objective.augmentation, interpolation="bilinear", rand_augment=RandAugment(2, 10.0)),
        canvas_size=(256, 256),
        mixing=Mixing(mixup=0.2),
    ),
    # A decay of 1e-4 a step at the highest rate: here it is multiplied by that rate.
    optimizer=AdamW(
        CosineDecay(peak=1e-3, warmup_steps=10_000, total_steps=steps, floor=0.0),
        clip_norm=1.0,
        eps=1e-8,
        first_moment="bfloat16",
        weight_decay=0.1,
    ),
    steps=steps,
    batch_size=1024,
)
