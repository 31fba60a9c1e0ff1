"""MAE huge, pretrained on ImageNet-1k's pictures (He et al. 2022, table 8): 800 epochs, patches of 14 x 14 pixels.

    python -m t5x_lite train configs/mae_h.py
    python -m t5x_lite plan configs/mae_h.py --topology v5e:8x8
    python -m t5x_lite train configs/mae_h_finetune.py

After pretraining of 1,600 epochs and fine-tuning the authors report 86.9 % in their table 3. It needs accelerators: it
has not been run to its end by us. The rest is configs/mae_b.py.

Recommended: v5e:8x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    mae_h on v5e:8x8: 64 chips, 16 hosts; mesh data 4, fsdp 16, sequence 1, tensor 1; remat unroll
    657,074,508 parameters; a step of 4,096 rows

     memory of a chip            GiB
     parameters                 0.15
     optimizer                  0.31
     average, teacher, batch    0.01
     activations, temporaries   9.27
     code                       0.67
     together, of 16: fits     10.41

     collective          among  count  MB a chip     ms  largest input
     all-gather             16    246    1,777.2  17.77  bf16[1,80,5120]
     reduce-scatter         16    203    1,285.1  12.85  bf16[1536,5120]
     all-reduce             16      4      209.5   2.09  bf16[16,80,1280]
     all-reduce              4      1      123.0   2.46  bf16[80,5120]
     collective-permute     16     64       62.9   0.63  bf16[96,5120]
     collective-permute      8     64       62.9   1.26  bf16[96,5120]
     collective-permute      6     64       31.5   0.31  bf16[48,5120]
     all-reduce             64      2        3.1   0.03  bf16[5120]

     a step at least              ms
     compute: matrix products  100.1
     hbm: memory                63.9
     ici: links between chips   37.4

     a step as the compiler expects it     ms
     operations                         179.6
     kernels of attention                45.4
     links that nothing hides            20.3

    model FLOPs 1.190e+15 a step, compiled 1.262e+15 (1.06 times)
    at most 94.3% MFU and 40,909 images/s, bound by compute
    expected 38.5% MFU and 16,694 images/s, 245.4 ms a step
"""

from dataclasses import replace

from mae_b import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=PRESETS["mae-h"],
    objective=replace(base.objective, patch_size=14),
    mesh=MeshShape(data=-1, fsdp=16),
)
