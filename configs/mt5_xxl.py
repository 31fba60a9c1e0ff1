"""mT5 XXL (Xue et al. 2021): T5 v1.1 over 101 languages, 10^6 steps of 1024 x 1024 tokens.

    python -m t5x_lite train configs/mt5_xxl.py
    python -m t5x_lite plan configs/mt5_xxl.py --topology v5p:4x4x4

The rest is configs/mt5_small.py, which says what it needs.

Recommended: v5p:4x4x4, with the mesh of this config, the fastest of four that `--search` compiled. Its plan,
made on two CPU cores with libtpu 0.0.42.1:

    mt5_xxl on v5p:4x4x4: 64 chips, 16 hosts; mesh data 4, fsdp 16, sequence 1, tensor 1; remat dots
    12,921,057,280 parameters; a step of 1,024 rows in 2 parts, 1,164,288 tokens

     memory of a chip            GiB
     parameters                 3.01
     optimizer                  0.00
     average, teacher, batch    0.00
     activations, temporaries  42.26
     code                       0.07
     together, of 95: fits     45.35

     collective      among  count  MB a chip      ms  largest input
     all-gather         16  2,238   89,238.1  223.10  bf16[250112,256]
     reduce-scatter     16    869   48,462.0  121.16  bf16[250112,4096]
     all-reduce         16      5    7,691.0   19.23  bf16[4096,250112]
     all-reduce          4    102    5,229.4   26.15  bf16[256,250112]
     all-reduce         64     99       10.4    0.02  f32[64,2047]

     a step at least                ms
     compute: matrix products  1,577.4
     hbm: memory                 477.5
     ici: links between chips    389.6

     a step as the compiler expects it       ms
     operations                         2,658.4
     kernels of attention                 371.5
     links that nothing hides             212.2

    model FLOPs 4.487e+16 a step, compiled 4.634e+16 (1.03 times)
    at most 96.8% MFU and 738,125 tokens/s, bound by compute
    expected 47.1% MFU and 359,121 tokens/s, 3,242.0 ms a step
"""

from dataclasses import replace

from mt5_small import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=replace(PRESETS["mt5-xxl"], dropout_rate=0.0),
    remat="dots",
    accumulation=2,
    mesh=MeshShape(data=-1, fsdp=16),
)
