"""ViT-B/16 on ImageNet-1k that begins with the encoder of configs/mae_b.py (He et al. 2022, table 9): 100 epochs.

    python -m t5x_lite train configs/mae_b_finetune.py --start.folder facebook/vit-mae-base

1,024 pictures a batch; rate 2e-3 down to 1e-6, a layer's 0.65 of that above it, and random erasing as in the authors'
command for targets normalized by patch, where the table has 4e-3 and 0.75. The head reads the class token, as in their
appendix A.1; the command takes the mean of the patches. The authors report 83.6 % after pretraining of 1,600 epochs. It
needs accelerators: it has not been run to its end by us. It reads imagenet/train and imagenet/val, a folder a class.
"""

from dataclasses import replace

from vit_b16 import experiment as base
from vit_b16 import train_pictures

from t5x_lite.images.augmentation import Augmentation, RandomErasing
from t5x_lite.images.mixing import Mixing
from t5x_lite.images.randaugment import TIMM_OPERATIONS, RandAugment
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ImageClassification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training.initialization import FromModel

steps = 100 * train_pictures // 1024

experiment = replace(
    base,
    model=replace(PRESETS["vit-b-16"], drop_path_rate=0.1),
    objective=ImageClassification(
        Augmentation(
            image_size=(224, 224),
            resize=256,
            rand_augment=RandAugment(
                2, 9.0, operations=TIMM_OPERATIONS, increasing=True, magnitude_std=0.5, probability=0.5
            ),
            random_erasing=RandomErasing(0.25),
        ),
        canvas_size=(256, 256),
        label_smoothing=0.1,
        mixing=Mixing(mixup=0.8, cutmix=1.0),
    ),
    optimizer=AdamW(
        CosineDecay(peak=2e-3, warmup_steps=5 * train_pictures // 1024, total_steps=steps, floor=1e-6 / 2e-3),
        eps=1e-8,
        weight_decay=0.05,
        layerwise_decay=0.65,
        layerwise_offset=1,
    ),
    start=FromModel("runs/mae_b"),
    steps=steps,
    batch_size=1024,
)
