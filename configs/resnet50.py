"""ResNet-50 on ImageNet-1k (He et al. 2016): 90 epochs with SGD at 0.1 x batch / 256 (Goyal et al. 2017, section 5.1).

    python -m t5x_lite train configs/resnet50.py

A warmup of 5 epochs from 0.1, a tenth of the rate after 30, 60 and 80 epochs, Nesterov momentum 0.9, weight decay 1e-4
and none of norms, the last norm of each block zero at first. The authors normalize by 32 pictures at a time, this one
by all 1,024. They report 76.5 % for batches of this size (figure 3). It needs the pictures of ImageNet-1k as folders of
classes, `imagenet/train` and `imagenet/val`; other places by `--data.source.path` and `--data.held-out-source.path`. We
have not run it.
"""

from dataclasses import replace

from deit_s import EPOCH
from deit_s import experiment as base

from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ImageClassification
from t5x_lite.optim.optimizers import Sgd
from t5x_lite.optim.schedules import StepDecay

experiment = replace(
    base,
    model=replace(PRESETS["resnet-50"], zero_init=True),
    objective=ImageClassification(Augmentation(resize=256, interpolation="bilinear")),
    data=replace(base.data, augmentation_repeats=1),
    optimizer=Sgd(
        StepDecay(
            peak=0.4, start=0.1, warmup_steps=5 * EPOCH, boundaries=(30 * EPOCH, 60 * EPOCH, 80 * EPOCH), factor=0.1
        ),
        nesterov=True,
        weight_decay=1e-4,
    ),
    steps=90 * EPOCH,
)
