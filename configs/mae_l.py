"""MAE large, pretrained on ImageNet-1k's pictures (He et al. 2022, table 8), its default: 800 epochs.

    python -m t5x_lite train configs/mae_l.py
    python -m t5x_lite plan configs/mae_l.py --topology v5e:8x8
    python -m t5x_lite train configs/mae_l_finetune.py

After fine-tuning the authors report 85.4 % in their table 1d, 85.9 % after 1,600 epochs. It needs accelerators: it has
not been run to its end by us. The rest is configs/mae_b.py.

Recommended: v5e:8x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    mae_l on v5e:8x8: 64 chips, 16 hosts; mesh data 4, fsdp 16, sequence 1, tensor 1; remat none
    329,541,888 parameters; a step of 4,096 rows

     memory of a chip            GiB
     parameters                 0.08
     optimizer                  0.15
     average, teacher, batch    0.01
     activations, temporaries  14.41
     code                       0.05
     together, of 16: fits     14.70

     collective      among  count  MB a chip     ms  largest input
     all-gather         16    669    2,237.4  22.37  bf16[1,64,4096]
     reduce-scatter     16    163      565.5   5.65  bf16[4096,1024]
     all-reduce         16    130      104.1   1.04  bf16[16,64,1024]
     all-reduce          4     33       61.7   1.23  bf16[64,4096]
     all-reduce         64     66        2.0   0.02  bf16[4096]

     a step at least              ms
     compute: matrix products   41.3
     hbm: memory               178.3
     ici: links between chips   30.3

     a step as the compiler expects it     ms
     operations                         204.4
     kernels of attention                11.4
     links that nothing hides            10.2

    model FLOPs 5.072e+14 a step, compiled 5.201e+14 (1.03 times)
    at most 22.6% MFU and 22,973 images/s, bound by hbm
    expected 17.8% MFU and 18,127 images/s, 226.0 ms a step
"""

from dataclasses import replace

from mae_b import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(base, model=PRESETS["mae-l"], mesh=MeshShape(data=-1, fsdp=16))
