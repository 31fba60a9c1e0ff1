"""DETR-DC5 with a ResNet-101 (Carion et al. 2020, section 4): the last stage dilated, 300 epochs of COCO.

    python -m t5x_lite train configs/detr_r101_dc5.py
    python -m t5x_lite plan configs/detr_r101_dc5.py --topology v5p:2x2x4

configs/detr_r50.py says what it needs. The feature map has four times as many positions, for small objects. The authors
report an AP of 44.9 on val2017 after 500 epochs (table 1). We have not run it.

Recommended: v5p:2x2x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    detr_r101_dc5 on v5p:2x2x4: 16 chips, 4 hosts; mesh data 16, fsdp 1, sequence 1, tensor 1; remat none
    60,464,672 parameters; a step of 64 rows

     memory of a chip            GiB
     parameters                 0.23
     optimizer                  0.45
     average, teacher, batch    0.00
     activations, temporaries  10.49
     code                       0.24
     together, of 95: fits     11.41

     collective  among  count  MB a chip    ms  largest input
     all-reduce     16     16      228.2  0.76  bf16[3,3,512,512]

     a step at least             ms
     compute: matrix products  34.3
     hbm: memory               42.3
     ici: links between chips  0.76

     a step as the compiler expects it     ms
     operations                         131.7
     kernels of attention                92.3
     links that nothing hides            0.76

    model FLOPs 2.219e+14 a step, compiled 2.520e+14 (1.14 times)
    at most 71.4% MFU and 1,512 images/s, bound by hbm
    expected 13.4% MFU and 285 images/s, 224.8 ms a step
    and 2.96 ms more for each further round of loops whose length the data decide

On v5e:4x4, 11.32 of 16 GiB a chip, 13.1% MFU and 119 images/s, 538.2 ms a step are expected, and 2.64 ms for each
further round.
"""

from dataclasses import replace

from detr_r50 import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.training.initialization import FromModel

experiment = replace(base, model=PRESETS["detr-resnet-101-dc5"], start=FromModel("microsoft/resnet-101"))
