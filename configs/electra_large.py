"""ELECTRA large (Clark et al. 2020, table 6): generator of a quarter, 1,750,000 steps of 2,048 rows of 512.

    python -m t5x_lite train configs/electra_large.py
    python -m t5x_lite plan configs/electra_large.py --topology v5e:8x8

A quarter of the tokens is masked. The paper's ELECTRA-400K is the same with 400,000 steps: add `--steps 400000
--optimizer.schedule.total-steps 400000`. The rest is configs/electra_small.py.

Recommended: v5e:8x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    electra_large on v5e:8x8: 64 chips, 16 hosts; mesh data 4, fsdp 16, sequence 1, tensor 1; remat dots
    354,655,291 parameters; a step of 2,048 rows, 1,048,576 tokens

     memory of a chip            GiB
     parameters                 0.08
     optimizer                  0.17
     average, teacher, batch    0.00
     activations, temporaries  10.67
     code                       0.07
     together, of 16: fits     10.98

     collective      among  count  MB a chip     ms  largest input
     all-gather         16  1,090    2,302.8  23.03  bf16[30522,64]
     reduce-scatter     16    267      557.4   5.57  bf16[4096,1024]
     all-reduce         16    173      448.3   4.48  bf16[30522,1024]
     all-reduce          4     50       78.0   1.56  bf16[30522,64]
     all-reduce         64     99        6.5   0.06  bf16[1,512,1024]

     a step at least              ms
     compute: matrix products  193.5
     hbm: memory               165.4
     ici: links between chips   34.7

     a step as the compiler expects it     ms
     operations                         519.9
     kernels of attention               100.0
     links that nothing hides            14.7

    model FLOPs 2.274e+15 a step, compiled 2.439e+15 (1.07 times)
    at most 93.2% MFU and 5,419,637 tokens/s, bound by compute
    expected 28.4% MFU and 1,652,352 tokens/s, 634.6 ms a step
"""

from dataclasses import replace

from electra_small import experiment as small

from t5x_lite.models import PRESETS
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.parallel import MeshShape

experiment = replace(
    small,
    model=PRESETS["electra-large"],
    objective=replace(small.objective, input_length=512, mask_rate=0.25),
    optimizer=replace(small.optimizer, schedule=LinearDecay(peak=2e-4, warmup_steps=10_000, total_steps=1_750_000)),
    steps=1_750_000,
    batch_size=2048,
    remat="dots",
    mesh=MeshShape(data=-1, fsdp=16),
)
