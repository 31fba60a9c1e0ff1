"""DeiT-S on ImageNet-1k (Touvron et al. 2021, section 6 and table 9): 300 epochs of 1,024 pictures of 224 x 224.

    python -m t5x_lite train configs/deit_s.py

It needs the pictures of ImageNet-1k as folders of classes, `imagenet/train` and `imagenet/val`; other places by
`--data.source.path` and `--data.held-out-source.path`. The authors report 79.8 %. We have not run it.
An epoch has a third of the pictures, three copies of each; the canvas keeps 256 x 256 pixels.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import Data, ImageFolder
from t5x_lite.images.augmentation import Augmentation, RandomErasing
from t5x_lite.images.mixing import Mixing
from t5x_lite.images.randaugment import TIMM_OPERATIONS, RandAugment
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ImageClassification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Checkpointing, Evaluation, Precision

EPOCH = 1_281_167 // 1024

experiment = Experiment(
    model=replace(PRESETS["deit-s"], drop_path_rate=0.1),
    objective=ImageClassification(
        Augmentation(
            resize=256,
            # rand-m9-mstd0.5-inc1 of timm
            rand_augment=RandAugment(2, 9.0, TIMM_OPERATIONS, increasing=True, magnitude_std=0.5, probability=0.5),
            random_erasing=RandomErasing(0.25),
        ),
        label_smoothing=0.1,
        mixing=Mixing(mixup=0.8, cutmix=1.0),
    ),
    data=Data(
        ImageFolder("imagenet/train"),
        tokenizer=None,
        held_out_source=ImageFolder("imagenet/val"),
        augmentation_repeats=3,
    ),
    # 5e-4 x 1024 / 512, down to 1e-5.
    optimizer=AdamW(
        CosineDecay(peak=1e-3, warmup_steps=5 * EPOCH, total_steps=300 * EPOCH, floor=0.01), eps=1e-8, weight_decay=0.05
    ),
    steps=300 * EPOCH,
    batch_size=1024,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5 * EPOCH, rows=50_000, metrics=("accuracy",)),
    checkpoints=Checkpointing(every=EPOCH),
)
