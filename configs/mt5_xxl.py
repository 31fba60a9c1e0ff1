"""mT5 XXL (Xue et al. 2021): T5 v1.1 over 101 languages, 10^6 steps of 1024 x 1024 tokens.

    python -m t5x_lite train configs/mt5_xxl.py
    python -m t5x_lite plan configs/mt5_xxl.py --topology v5p:4x4x4

The rest is configs/mt5_small.py, which says what it needs.

Recommended: v5p:4x4x4, with the mesh of this config. Its plan, made on two
CPU cores with libtpu 0.0.42.1:

    mt5_xxl on v5p:4x4x4: 64 chips, 16 hosts; mesh data 4, fsdp 16, sequence 1, tensor 1; remat full
    12,921,057,280 parameters; a step of 1,024 rows, 1,164,288 tokens

     memory of a chip            GiB
     parameters                 3.01
     optimizer                  0.00
     average, teacher, batch    0.00
     activations, temporaries  11.99
     code                       0.08
     together, of 95: fits     15.08

     collective      among  count  MB a chip      ms  largest input
     all-gather         16  1,128   44,624.0  111.56  bf16[250112,256]
     reduce-scatter     16    435   24,236.0   60.59  bf16[250112,4096]
     all-reduce         16      4    3,849.2    9.62  bf16[4096,250112]
     all-reduce          4     51    2,614.7   13.07  bf16[256,250112]
     all-reduce         64     49        5.2    0.01  f32[64,2047]

     a step at least                ms
     compute: matrix products  1,964.3
     hbm: memory                 627.3
     ici: links between chips    194.9

     a step as the compiler expects it       ms
     operations                         2,982.8
     kernels of attention                 373.9
     links that nothing hides             108.0

    model FLOPs 4.487e+16 a step, compiled 5.770e+16 (1.29 times)
    at most 77.8% MFU and 592,733 tokens/s, bound by compute
    expected 44.1% MFU and 336,040 tokens/s, 3,464.7 ms a step
"""

from dataclasses import replace

from mt5_small import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=replace(PRESETS["mt5-xxl"], dropout_rate=0.0),
    remat="full",
    mesh=MeshShape(data=-1, fsdp=16),
)
