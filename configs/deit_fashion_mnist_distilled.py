"""A small DeiT (Touvron et al. 2021) on Fashion-MNIST: it learns from the labels and from a residual network.

    F=fashion_mnist.npz
    python -m t5x_lite train configs/resnet_fashion_mnist.py --data.source.path $F --data.held-out-source.path $F
    python -m t5x_lite train configs/deit_fashion_mnist_distilled.py --data.source.path $F \\
        --data.held-out-source.path $F

Patches of 7 x 7, and three epochs. Of all 10,000 test pictures 84.8 % are correct, without the teacher 84.3 % (means of
three seeds; the difference's 95 % interval is -0.03 to +1.02 points).
"""

from dataclasses import replace

from vit_fashion_mnist import experiment as base

from t5x_lite.models import DeiTConfig
from t5x_lite.objectives import ImageDistillation
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Evaluation

experiment = replace(
    base,
    model=DeiTConfig(
        image_size=(28, 28),
        patch_size=7,
        num_channels=1,
        embed_dim=128,
        num_heads=4,
        mlp_dim=256,
        num_layers=4,
        num_classes=10,
    ),
    objective=ImageDistillation(
        base.objective.augmentation, (28, 28), num_channels=1, teacher="runs/resnet_fashion_mnist"
    ),
    optimizer=AdamW(CosineDecay(peak=2e-3, warmup_steps=300, total_steps=1500, floor=0.0), weight_decay=0.05),
    steps=1500,
    evaluation=Evaluation(every=1500, rows=10_000, metrics=("accuracy",)),
)
