"""GPT-3 13B (Brown et al. 2020, tables 2.1 and 2.2, appendix B): 300 billion tokens, 1,024 rows of 2,048 a batch.

    python -m t5x_lite train configs/gpt3_13b.py
    python -m t5x_lite plan configs/gpt3_13b.py --topology v5p:4x4x8

A batch of 2.1 million tokens where the paper says 2 million, and a rate of 1e-4. The rest is configs/gpt3_175b.py,
which says what it needs.

Recommended: v5p:4x4x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    gpt3_13b on v5p:4x4x8: 128 chips, 32 hosts; mesh data 8, fsdp 16, sequence 1, tensor 1; remat full
    12,853,626,880 parameters; a step of 1,024 rows, 2,098,176 tokens

     memory of a chip            GiB
     parameters                 2.99
     optimizer                  5.99
     average, teacher, batch    0.00
     activations, temporaries  13.91
     code                       0.04
     together, of 95: fits     22.93

     collective      among  count  MB a chip      ms  largest input
     all-gather         16    562   47,691.6  119.23  bf16[50304,320]
     reduce-scatter     16    240   23,593.0   58.98  bf16[5120,20480]
     all-reduce          8     42    2,865.2   14.33  bf16[50304,320]
     all-reduce         16    164    1,951.0    4.88  bf16[50304,5120]
     all-reduce        128     82       55.5    0.09  bf16[1,2048,5120]

     a step at least                ms
     compute: matrix products  3,554.8
     hbm: memory                 963.7
     ici: links between chips    197.5

     a step as the compiler expects it       ms
     operations                         4,183.9
     kernels of attention                 292.3
     links that nothing hides              89.4

    model FLOPs 1.668e+17 a step, compiled 2.088e+17 (1.25 times)
    at most 79.9% MFU and 590,243 tokens/s, bound by compute
    expected 62.2% MFU and 459,565 tokens/s, 4,565.6 ms a step
"""

from dataclasses import replace

from gpt3_175b import experiment as largest

from t5x_lite.models import PRESETS
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.parallel import MeshShape

tokens = 1024 * 2048

experiment = replace(
    largest,
    model=replace(PRESETS["gpt3-13b"], vocab_size=50_304),
    optimizer=replace(
        largest.optimizer,
        schedule=CosineDecay(
            peak=1e-4,
            warmup_steps=round(375e6 / tokens),
            total_steps=round(260e9 / tokens),
            floor=0.1,
        ),
    ),
    steps=round(300e9 / tokens),
    batch_size=1024,
    mesh=MeshShape(data=-1, fsdp=16),
)
