"""A linear classifier on the frozen features of configs/mae_b.py (He et al. 2022, table 10): 90 epochs of ImageNet-1k.

    python -m t5x_lite train configs/mae_b_linear_probe.py --start.folder facebook/vit-mae-base

16,384 pictures a batch with LARS at 0.1 for every 256 of them, which is 6.4; 10 epochs of warmup, no weight decay,
crops and flips alone. The class token's features are normalized by the batch before the one matrix that is trained
(appendix A.1). The authors report 68.0 % after pretraining of 1,600 epochs; for large and huge they find 50 epochs
enough. It needs accelerators: it has not been run to its end by us. It reads imagenet/train and imagenet/val, a folder
a class.
"""

from dataclasses import replace

from vit_b16 import experiment as base
from vit_b16 import train_pictures

from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ImageClassification
from t5x_lite.optim.optimizers import Lars
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Checkpointing, Evaluation
from t5x_lite.training.initialization import FromModel

steps = 90 * train_pictures // 16_384

experiment = replace(
    base,
    model=replace(PRESETS["vit-b-16"], head_norm=True),
    objective=ImageClassification(Augmentation(resize=256)),
    optimizer=Lars(
        CosineDecay(peak=6.4, warmup_steps=10 * train_pictures // 16_384, total_steps=steps, floor=0.0),
        frozen=("embeddings/*", "encoder/*"),
    ),
    start=FromModel("runs/mae_b"),
    steps=steps,
    batch_size=16_384,
    evaluation=Evaluation(every=500, rows=50_000),
    checkpoints=Checkpointing(every=500),
)
