"""ResNet-50 on ImageNet-1k (He et al. 2016): 90 epochs with SGD at 0.1 x batch / 256 (Goyal et al. 2017, section 5.1).

    python -m t5x_lite train configs/resnet50.py
    python -m t5x_lite plan configs/resnet50.py --topology v5e:4x4

A warmup of 5 epochs from 0.1, a tenth of the rate after 30, 60 and 80 epochs, Nesterov momentum 0.9, weight decay 1e-4
and none of norms, the last norm of each block zero at first. The authors normalize by 32 pictures at a time, this one
by all 1,024. They report 76.5 % for batches of this size (figure 3). It needs the pictures of ImageNet-1k as folders of
classes, `imagenet/train` and `imagenet/val`; other places by `--data.source.path` and `--data.held-out-source.path`. We
have not run it.

Recommended: v5e:4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    resnet50 on v5e:4x4: 16 chips, 4 hosts; mesh data 16, fsdp 1, sequence 1, tensor 1; remat none
    25,557,032 parameters; a step of 1,024 rows

     memory of a chip           GiB
     parameters                0.10
     optimizer                 0.10
     average, teacher, batch   0.01
     activations, temporaries  2.43
     code                      0.10
     together, of 16: fits     2.73

     collective  among  count  MB a chip    ms  largest input
     all-reduce     16    197      104.5  1.04  f32[2048,1000]

     a step at least             ms
     compute: matrix products   7.7
     hbm: memory               19.5
     ici: links between chips     1

     a step as the compiler expects it    ms
     operations                         54.4
     kernels of attention                  0
     links that nothing hides              1

    model FLOPs 2.512e+13 a step, compiled 2.419e+13 (0.96 times)
    at most 40.8% MFU and 52,475 images/s, bound by hbm
    expected 14.4% MFU and 18,481 images/s, 55.4 ms a step
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
