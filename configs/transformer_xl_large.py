"""Transformer-XL large on WikiText-103 (Dai et al. 2019, table 1 and their script): 4,000,000 steps of 128 rows of 384.

    python -m t5x_lite train configs/transformer_xl_large.py
    python -m t5x_lite plan configs/transformer_xl_large.py --topology v5p:2x2x2
    python -m t5x_lite evaluate runs/transformer_xl_large --memory-length 1600

The paper reports a test perplexity of 18.3 with a memory of 1,600. The rest is configs/transformer_xl_base.py, which
says what it needs.

Recommended: v5p:2x2x2, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    transformer_xl_large on v5p:2x2x2: 8 chips, 2 hosts; mesh data 8, fsdp 1, sequence 1, tensor 1; remat none
    285,205,322 parameters; a step of 128 rows, 49,280 tokens

     memory of a chip            GiB
     parameters                 1.06
     optimizer                  2.12
     average, teacher, batch    0.21
     activations, temporaries  10.40
     code                       0.06
     together, of 95: fits     13.86

     collective  among  count  MB a chip    ms  largest input
     all-reduce      8     39    1,242.6  4.14  f32[20003,1024]

     a step at least              ms
     compute: matrix products   28.7
     hbm: memory               130.8
     ici: links between chips    4.1

     a step as the compiler expects it     ms
     operations                         207.1
     kernels of attention                11.3
     links that nothing hides             4.1

    model FLOPs 1.077e+14 a step, compiled 1.054e+14 (0.98 times)
    at most 22.4% MFU and 376,817 tokens/s, bound by hbm
    expected 13.2% MFU and 221,464 tokens/s, 222.5 ms a step
"""

from dataclasses import replace

from transformer_xl_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.objectives import SegmentLanguageModel
from t5x_lite.optim.schedules import CosineDecay

experiment = replace(
    base,
    model=PRESETS["transfo-xl-wt103"],
    objective=SegmentLanguageModel(384, memory_length=384, evaluation_memory_length=1600, same_length=True),
    optimizer=replace(base.optimizer, schedule=CosineDecay(peak=2.5e-4, warmup_steps=16_000, total_steps=4_000_000)),
    steps=4_000_000,
    batch_size=128,
)
