"""MAE large, pretrained on ImageNet-1k's pictures (He et al. 2022, table 8), its default: 800 epochs.

    python -m t5x_lite train configs/mae_l.py
    python -m t5x_lite plan configs/mae_l.py --topology v5e:8x8
    python -m t5x_lite train configs/mae_l_finetune.py

After fine-tuning the authors report 85.4 % in their table 1d, 85.9 % after 1,600 epochs. It needs accelerators: it has
not been run to its end by us. The rest is configs/mae_b.py.

Recommended: v5e:8x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    mae_l on v5e:8x8: 64 chips, 16 hosts; mesh data 4, fsdp 16, sequence 1, tensor 1; remat unroll
    329,541,888 parameters; a step of 4,096 rows

     memory of a chip           GiB
     parameters                0.08
     optimizer                 0.15
     average, teacher, batch   0.01
     activations, temporaries  6.12
     code                      0.49
     together, of 16: fits     6.85

     collective      among  count  MB a chip    ms  largest input
     all-gather         16    229      896.3  8.96  bf16[1,64,4096]
     reduce-scatter     16    163      565.5  5.65  bf16[4096,1024]
     all-reduce         16      4      104.6  1.05  bf16[16,64,1024]
     all-reduce          4      1       61.7  1.23  bf16[64,4096]
     all-reduce         64      2        2.0  0.02  bf16[4096]

     a step at least             ms
     compute: matrix products  41.2
     hbm: memory               31.4
     ici: links between chips  16.9

     a step as the compiler expects it     ms
     operations                         101.2
     kernels of attention                12.6
     links that nothing hides             8.5

    model FLOPs 5.072e+14 a step, compiled 5.196e+14 (1.02 times)
    at most 97.6% MFU and 99,392 images/s, bound by compute
    expected 32.9% MFU and 33,468 images/s, 122.4 ms a step
"""

from dataclasses import replace

from mae_b import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(base, model=PRESETS["mae-l"], mesh=MeshShape(data=-1, fsdp=16))
