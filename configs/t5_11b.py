"""T5 11B (Raffel et al. 2020, section 3.7): C4, 10^6 steps of 2,048 rows of 512 tokens.

    python -m t5x_lite train configs/t5_11b.py
    python -m t5x_lite plan configs/t5_11b.py --topology v5p:4x4x4

The paper mixes its supervised tasks into the text; here it is the text alone, as for T5 v1.1. The rest is
configs/t5_base.py, which says what it needs.

Recommended: v5p:4x4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    t5_11b on v5p:4x4x4: 64 chips, 16 hosts; mesh data 4, fsdp 16, sequence 1, tensor 1; remat full
    11,307,321,344 parameters; a step of 2,048 rows, 1,163,264 tokens

     memory of a chip            GiB
     parameters                 2.63
     optimizer                  0.00
     average, teacher, batch    0.00
     activations, temporaries   8.69
     code                       0.09
     together, of 95: fits     11.41

     collective      among  count  MB a chip      ms  largest input
     all-gather         16    787   42,381.6  105.95  bf16[1,64,65536]
     reduce-scatter     16    389   21,180.6   52.95  bf16[65536,1024]
     all-reduce          4     50    2,132.4   10.66  bf16[64,65536]
     all-reduce         16    103      372.5    0.93  bf16[32128,1024]
     all-reduce         64     49        2.2    0.00  f32[128,1023]

     a step at least                ms
     compute: matrix products  2,036.7
     hbm: memory                 574.2
     ici: links between chips    170.5

     a step as the compiler expects it       ms
     operations                         2,223.9
     kernels of attention                 344.2
     links that nothing hides              72.4

    model FLOPs 4.657e+16 a step, compiled 5.983e+16 (1.28 times)
    at most 77.8% MFU and 571,164 tokens/s, bound by compute
    expected 60.0% MFU and 440,546 tokens/s, 2,640.5 ms a step
"""

from dataclasses import replace

from t5_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=PRESETS["t5-11b"],
    steps=1_000_000,
    batch_size=2048,
    remat="full",
    mesh=MeshShape(data=-1, fsdp=16),
)
