"""ViT-H/14 on ImageNet-1k (Dosovitskiy et al. 2021, section 3.1 and table 3): 300 epochs, 4,096 pictures a batch.

    python -m t5x_lite train configs/vit_h14.py
    python -m t5x_lite plan configs/vit_h14.py --topology v5e:8x8

The table's row of ImageNet, which is for all sizes. The authors train H/14 on JFT-300M, which nobody but Google has,
and on ImageNet-21k, for which the table has no row of this size; they report no figure for ImageNet-1k alone.
configs/deit3_h.py and mae_h.py are better recipes for it. The rest is configs/vit_b16.py, which says what it needs.

Recommended: v5e:8x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    vit_h14 on v5e:8x8: 64 chips, 16 hosts; mesh data 4, fsdp 16, sequence 1, tensor 1; remat dots
    633,685,480 parameters; a step of 4,096 rows in 2 parts

     memory of a chip           GiB
     parameters                0.15
     optimizer                 0.30
     average, teacher, batch   0.01
     activations, temporaries  7.79
     code                      0.03
     together, of 16: fits     8.27

     collective          among  count  MB a chip     ms  largest input
     all-gather             16  1,418    8,473.9  84.74  bf16[1,80,5120]
     reduce-scatter         16    326    2,495.8  24.96  bf16[5120,1536]
     all-reduce             16    260      401.0   4.01  bf16[16,80,1280]
     all-reduce              4     65      237.3   4.75  bf16[80,5120]
     collective-permute      8    128      125.8   2.52  bf16[5120,96]
     collective-permute     16    128      125.8   1.26  bf16[5120,96]
     collective-permute      6    128       62.9   0.63  bf16[5120,48]
     all-reduce             64    133        8.1   0.08  bf16[256,1280]

     a step at least              ms
     compute: matrix products  358.7
     hbm: memory               212.5
     ici: links between chips  122.9

     a step as the compiler expects it     ms
     operations                         659.2
     kernels of attention               113.5
     links that nothing hides            45.6

    model FLOPs 4.111e+15 a step, compiled 4.522e+15 (1.10 times)
    at most 90.9% MFU and 11,421 images/s, bound by compute
    expected 39.8% MFU and 5,005 images/s, 818.3 ms a step
"""

from dataclasses import replace

from vit_b16 import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=replace(PRESETS["vit-h-14"], pooler=True, dropout_rate=0.1),
    remat="dots",
    accumulation=2,
    mesh=MeshShape(data=-1, fsdp=16),
)
