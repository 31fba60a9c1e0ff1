"""GPT-3 13B (Brown et al. 2020, tables 2.1 and 2.2, appendix B): 300 billion tokens, 1,024 rows of 2,048 a batch.

    python -m t5x_lite train configs/gpt3_13b.py
    python -m t5x_lite plan configs/gpt3_13b.py --topology v5p:4x4x8

A batch of 2.1 million tokens where the paper says 2 million, and a rate of 1e-4. The rest is configs/gpt3_175b.py,
which says what it needs.

Recommended: v5p:4x4x8, with the mesh of this config, the fastest of four that `--search` compiled. Its plan,
made on two CPU cores with libtpu 0.0.42.1:

    gpt3_13b on v5p:4x4x8: 128 chips, 32 hosts; mesh data 1, fsdp 128, sequence 1, tensor 1; remat dots
    12,853,626,880 parameters; a step of 1,024 rows in 2 parts, 2,098,176 tokens

     memory of a chip            GiB
     parameters                 0.37
     optimizer                  0.75
     average, teacher, batch    0.00
     activations, temporaries  31.02
     code                       0.03
     together, of 95: fits     32.18

     collective          among  count  MB a chip      ms  largest input
     all-gather            128    963  100,919.8  168.20  bf16[50304,40]
     reduce-scatter         64    480   49,545.2   99.09  bf16[20480,5120]
     all-reduce             64      4    4,056.5    8.11  bf16[50304,5120]
     reduce-scatter          2    160      314.6    3.15  bf16[20480,96]
     all-reduce              2     84      294.3    2.94  bf16[50304,80]
     all-reduce            128    407      151.8    0.25  bf16[1,2048,5120]
     collective-permute      2    160       52.4    0.52  bf16[20480,8]

     a step at least                ms
     compute: matrix products  2,955.9
     hbm: memory                 403.3
     ici: links between chips    282.3

     a step as the compiler expects it       ms
     operations                         3,633.9
     kernels of attention                 292.3
     links that nothing hides             122.2

    model FLOPs 1.668e+17 a step, compiled 1.737e+17 (1.04 times)
    at most 96.1% MFU and 709,826 tokens/s, bound by compute
    expected 70.1% MFU and 518,271 tokens/s, 4,048.4 ms a step
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
    mesh=MeshShape(data=1, fsdp=-1),
    remat="dots",
    accumulation=2,
)
