"""MAE base, pretrained on ImageNet-1k's pictures without their labels (He et al. 2022, table 8): 800 epochs.

    python -m t5x_lite train configs/mae_b.py
    python -m t5x_lite plan configs/mae_b.py --topology v5e:8x8
    python -m t5x_lite train configs/mae_b_finetune.py         # or mae_b_linear_probe.py

4,096 pictures a batch at 1.5e-4 for every 256 of them, which is 2.4e-3; 40 epochs of warmup. Targets are normalized by
patch, as in the authors' commands. It needs accelerators: it has not been run to its end by us. It reads
imagenet/train and imagenet/val, whose folders may be classes.

Recommended: v5e:8x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    mae_b on v5e:8x8: 64 chips, 16 hosts; mesh data 64, fsdp 1, sequence 1, tensor 1; remat unroll
    111,907,840 parameters; a step of 4,096 rows

     memory of a chip           GiB
     parameters                0.42
     optimizer                 0.83
     average, teacher, batch   0.01
     activations, temporaries  3.46
     code                      0.26
     together, of 16: fits     4.99

     collective  among  count  MB a chip    ms  largest input
     all-reduce     64      3      439.9  4.40  bf16[3072,768]

     a step at least             ms
     compute: matrix products  19.9
     hbm: memory               26.3
     ici: links between chips   4.4

     a step as the compiler expects it    ms
     operations                         59.8
     kernels of attention               12.6
     links that nothing hides            4.4

    model FLOPs 2.382e+14 a step, compiled 2.507e+14 (1.05 times)
    at most 71.8% MFU and 155,629 images/s, bound by hbm
    expected 24.6% MFU and 53,279 images/s, 76.9 ms a step
"""

from dataclasses import replace

from vit_b16 import experiment as base
from vit_b16 import train_pictures

from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import PRESETS
from t5x_lite.objectives import MaskedAutoencoding
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Evaluation

steps = 800 * train_pictures // 4096

experiment = replace(
    base,
    model=PRESETS["mae-b"],
    objective=MaskedAutoencoding(
        Augmentation(image_size=(224, 224), resize=256, area=(0.2, 1.0)),
        canvas_size=(256, 256),
        patch_size=16,
    ),
    optimizer=AdamW(
        CosineDecay(peak=2.4e-3, warmup_steps=40 * train_pictures // 4096, total_steps=steps, floor=0.0),
        b2=0.95,
        eps=1e-8,
        weight_decay=0.05,
    ),
    steps=steps,
    evaluation=Evaluation(every=5000, rows=8192),
)
