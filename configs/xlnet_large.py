"""XLNet large (Yang et al. 2019, table 7): 500,000 steps of 8,192 rows of 512, partial prediction with K = 6.

    python -m t5x_lite train configs/xlnet_large.py
    python -m t5x_lite plan configs/xlnet_large.py --topology v5p:4x4x4

The paper's 126 GB are BooksCorpus, Wikipedia, Giga5, ClueWeb and Common Crawl. The rest is configs/xlnet_base.py, which
says what stands for them and what it needs.

Recommended: v5p:4x4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    xlnet_large on v5p:4x4x4: 64 chips, 16 hosts; mesh data 1, fsdp 64, sequence 1, tensor 1; remat dots
    360,300,800 parameters; a step of 8,192 rows in 4 parts, 6,242,304 tokens

     memory of a chip            GiB
     parameters                 0.02
     optimizer                  0.04
     average, teacher, batch    2.25
     activations, temporaries  24.40
     code                       0.08
     together, of 95: fits     26.80

     collective      among  count  MB a chip    ms  largest input
     all-gather         64  1,252    5,212.6  8.69  bf16[32000,16]
     reduce-scatter     32  1,056    4,485.8  8.97  bf16[4096,1024]
     all-reduce         32      8    1,015.8  2.03  bf16[32000,1024]
     reduce-scatter      2  1,056       72.4  0.72  bf16[4096,32]
     all-reduce         64    498       20.2  0.03  f32[32000]
     all-reduce          2      8       16.4  0.16  bf16[32000,32]

     a step at least                ms
     compute: matrix products    554.4
     hbm: memory               2,037.2
     ici: links between chips     20.6

     a step as the compiler expects it       ms
     operations                         4,601.3
     kernels of attention                 475.0
     links that nothing hides              12.7

    model FLOPs 1.555e+16 a step, compiled 1.629e+16 (1.05 times)
    at most 26.0% MFU and 3,064,210 tokens/s, bound by hbm
    expected 10.4% MFU and 1,226,636 tokens/s, 5,089.0 ms a step
    and 0.07 ms more for each further round of loops whose length the data decide
"""

from dataclasses import replace

from xlnet_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=replace(PRESETS["xlnet-large-cased"], heads=("permutation_lm",)),
    optimizer=replace(base.optimizer, schedule=LinearDecay(peak=4e-4, warmup_steps=40_000, total_steps=500_000)),
    steps=500_000,
    batch_size=8192,
    accumulation=4,
    mesh=MeshShape(data=1, fsdp=-1),
    remat="dots",
)
