"""ELECTRA large (Clark et al. 2020, table 6): generator of a quarter, 1,750,000 steps of 2,048 rows of 512.

    python -m t5x_lite train configs/electra_large.py
    python -m t5x_lite plan configs/electra_large.py --topology v5e:8x8

A quarter of the tokens is masked. The paper's ELECTRA-400K is the same with 400,000 steps: add `--steps 400000
--optimizer.schedule.total-steps 400000`. The rest is configs/electra_small.py.

Recommended: v5e:8x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    electra_large on v5e:8x8: 64 chips, 16 hosts; mesh data 64, fsdp 1, sequence 1, tensor 1; remat dots
    354,655,291 parameters; a step of 2,048 rows, 1,048,576 tokens

     memory of a chip            GiB
     parameters                 1.32
     optimizer                  2.64
     average, teacher, batch    0.00
     activations, temporaries  10.48
     code                       0.06
     together, of 16: fits     14.50

     collective  among  count  MB a chip     ms  largest input
     all-reduce     64    100    1,768.3  17.68  f32[30522,1024]

     a step at least              ms
     compute: matrix products  193.5
     hbm: memory               342.7
     ici: links between chips   17.7

    model FLOPs 2.274e+15 a step, compiled 2.439e+15 (1.07 times)
    at most 52.6% MFU and 3,059,934 tokens/s, bound by hbm
    compiled in 123 s
"""

from dataclasses import replace

from electra_small import experiment as small

from t5x_lite.models import PRESETS
from t5x_lite.optim.schedules import LinearDecay

experiment = replace(
    small,
    model=PRESETS["electra-large"],
    objective=replace(small.objective, input_length=512, mask_rate=0.25),
    optimizer=replace(small.optimizer, schedule=LinearDecay(peak=2e-4, warmup_steps=10_000, total_steps=1_750_000)),
    steps=1_750_000,
    batch_size=2048,
    remat="dots",
)
