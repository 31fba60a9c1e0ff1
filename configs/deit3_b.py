"""DeiT III, B on ImageNet-1k (Touvron et al. 2022, table 1 and the authors' command): 800 epochs at 192 x 192.

    python -m t5x_lite train configs/deit3_b.py

It needs the pictures of ImageNet-1k as folders of classes, `imagenet/train` and `imagenet/val`; other places by
`--data.source.path` and `--data.held-out-source.path`. After it the authors fine-tune for 20 epochs at 224 x 224, and
report 83.8 %. We have not run it. Weight decay and the share of dropped branches, one for all layers, are those of the
command; both labels of a mixed picture are targets of 1, as in their code.
"""

from dataclasses import replace

from deit_s import experiment as base

from t5x_lite.images.augmentation import Augmentation, ColorJitter
from t5x_lite.images.mixing import Mixing
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ImageClassification
from t5x_lite.optim.optimizers import Lamb
from t5x_lite.optim.schedules import CosineDecay

EPOCH, SIZE = 1_281_167 // 2048, (192, 192)

experiment = replace(
    base,
    model=replace(PRESETS["deit3-b"], image_size=SIZE),
    objective=ImageClassification(
        Augmentation(image_size=SIZE, three_augment=True, color_jitter=ColorJitter(0.3, 0.3, 0.3)),
        loss_type="multilabel_bce",
        mixing=Mixing(mixup=0.8, cutmix=1.0),
    ),
    optimizer=Lamb(
        CosineDecay(peak=3e-3, warmup_steps=5 * EPOCH, total_steps=800 * EPOCH, floor=1e-5 / 3e-3),
        clip_norm=1.0,
        eps=1e-8,
        weight_decay=0.05,
    ),
    steps=800 * EPOCH,
    batch_size=2048,
    evaluation=replace(base.evaluation, every=5 * EPOCH),
    checkpoints=replace(base.checkpoints, every=EPOCH),
)
