"""ResNet-50 on ImageNet-1k (He et al. 2016): 90 epochs with SGD at 0.1 x batch / 256 (Goyal et al. 2017, section 5.1).

    python -m t5x_lite train configs/resnet50.py

A warm-up of 5 epochs, weight decay 1e-4 and none of norms, as there; the cosine and the smoothed labels are those of
He et al. 2019 (Bag of Tricks for Image Classification, section 5). It needs the pictures of ImageNet-1k as folders of
classes, `imagenet/train` and `imagenet/val`; other places by `--data.source.path` and `--data.held-out-source.path`. We
have not run it. With a schedule of steps and plain labels Goyal et al. report 76.4 % (table 1).
"""

from dataclasses import replace

from deit_s import EPOCH
from deit_s import experiment as base

from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ImageClassification
from t5x_lite.optim.optimizers import Sgd
from t5x_lite.optim.schedules import CosineDecay

experiment = replace(
    base,
    model=PRESETS["resnet-50"],
    objective=ImageClassification(Augmentation(resize=256, interpolation="bilinear"), label_smoothing=0.1),
    data=replace(base.data, augmentation_repeats=1),
    optimizer=Sgd(CosineDecay(peak=0.4, warmup_steps=5 * EPOCH, total_steps=90 * EPOCH, floor=0.0), weight_decay=1e-4),
    steps=90 * EPOCH,
)
