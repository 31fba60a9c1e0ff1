"""GPT-3 175B (Brown et al. 2020, tables 2.1 and 2.2, appendix B): 300 billion tokens, 1,536 rows of 2,048 a batch.

    python -m t5x_lite train configs/gpt3_175b.py
    python -m t5x_lite plan configs/gpt3_175b.py --topology v5p:8x8x16

Adam with 0.9 and 0.95, clipping at 1.0, weight decay 0.1; linear growth over 375 million tokens to 0.6e-4, half a
cosine down to a tenth over 260 billion, a tenth from then on. The paper's batch of 3.2 million tokens is 3.1 here, and
is had from the first step on: its linear growth from 32,000 tokens over the first 4 to 12 billion is not built. Its
layers take turns between dense and banded sparse attention; all are dense here.

The paper's mixture is not published; C4 stands for it (configs/t5_base.py says how to prepare it). It needs a pod and
has not been run by us. `python -m t5x_lite inspect configs/gpt3_175b.py --text any_text.txt` shows it on a laptop,
which also trains its small sister: configs/gpt2_small.py.

Recommended: v5p:8x8x16, with the mesh of this config. Its plan, made on two
CPU cores with libtpu 0.0.42.1:

    gpt3_175b on v5p:8x8x16: 1,024 chips, 256 hosts; mesh data 8, fsdp 64, sequence 1, tensor 2; remat full
    174,604,836,864 parameters; a step of 1,536 rows, 3,147,264 tokens

     memory of a chip            GiB
     parameters                 5.08
     optimizer                 10.17
     average, teacher, batch    0.00
     activations, temporaries  24.57
     code                       0.03
     together, of 95: fits     39.85

     collective      among  count  MB a chip        ms  largest input
     all-gather         64  1,346  343,123.8  1,143.75  bf16[25152,192]
     reduce-scatter     64    576  171,228.3    570.76  bf16[12288,24576]
     all-reduce          2    502   72,779.7    727.80  bf16[3,2048,12288]
     all-reduce          8     98    4,790.1     23.95  bf16[25152,192]
     all-reduce         64    581    2,536.3      8.45  bf16[25152,12288]
     all-reduce        512    194      164.2      0.33  bf16[1,2048,12288]
     all-reduce        128      1        0.0      0.00  f32[]

     a step at least                ms
     compute: matrix products  8,784.5
     hbm: memory               3,975.5
     ici: links between chips  2,475.0

     a step as the compiler expects it        ms
     operations                         10,033.5
     kernels of attention                  315.9
     links that nothing hides            1,428.6

    model FLOPs 3.340e+18 a step, compiled 4.129e+18 (1.24 times)
    at most 80.9% MFU and 358,273 tokens/s, bound by compute
    expected 60.3% MFU and 267,215 tokens/s, 11,778.0 ms a step
    compiled in 69 s
"""

from dataclasses import replace

from gpt2_small import experiment as base
from t5_base import experiment as t5_base

from t5x_lite.models import PRESETS
from t5x_lite.objectives import CausalLanguageModel
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.parallel import MeshShape

tokens = 1536 * 2048
c4 = t5_base.data

experiment = replace(
    base,
    # 47 rows more than the tokenizer has ids: a number that every mesh divides.
    model=replace(PRESETS["gpt3-175b"], vocab_size=50_304),
    objective=CausalLanguageModel(input_length=2048),
    data=replace(base.data, source=c4.source, held_out_source=c4.held_out_source),
    optimizer=replace(
        base.optimizer,
        schedule=CosineDecay(
            peak=0.6e-4,
            warmup_steps=round(375e6 / tokens),
            total_steps=round(260e9 / tokens),
            floor=0.1,
        ),
    ),
    steps=round(300e9 / tokens),
    batch_size=1536,
    remat="full",
    mesh=MeshShape(data=-1, fsdp=64, tensor=2),
)
