"""A small residual network (He et al. 2016) on Fashion-MNIST, the teacher of configs/deit_fashion_mnist_distilled.py.

    F=fashion_mnist.npz
    python -m t5x_lite train configs/resnet_fashion_mnist.py --data.source.path $F --data.held-out-source.path $F

The header of configs/vit_fashion_mnist.py says what the file holds. Of all 10,000 test pictures 89.7 % are correct
(seed 0).
"""

from dataclasses import replace

from vit_fashion_mnist import experiment as base

from t5x_lite.models import ResNetConfig
from t5x_lite.optim.optimizers import Sgd
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Evaluation

experiment = replace(
    base,
    model=ResNetConfig(
        depths=(1, 1, 1),
        widths=(16, 32, 64),
        bottleneck=False,
        stem_width=16,
        stem="whole",
        num_channels=1,
        num_classes=10,
    ),
    optimizer=Sgd(CosineDecay(peak=0.2, warmup_steps=100, total_steps=1500, floor=0.0), weight_decay=1e-4),
    steps=1500,
    evaluation=Evaluation(every=1500, rows=10_000, metrics=("accuracy",)),
)
