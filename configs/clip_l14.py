"""CLIP with ViT-L/14 (Radford et al. 2021, section 2.5 and tables 18 and 20): 32 epochs of 400 million pairs.

    python -m t5x_lite train configs/clip_l14.py
    python -m t5x_lite plan configs/clip_l14.py --topology v5p:4x4x4

configs/clip_b32.py says what it needs; this one is larger and learns at 4e-4. The authors report 75.3 % on ImageNet
without its labels (table 11). We have not run it.

Recommended: v5p:4x4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    clip_l14 on v5p:4x4x4: 64 chips, 16 hosts; mesh data 64, fsdp 1, sequence 1, tensor 1; remat unroll
    427,616,513 parameters; a step of 32,768 rows

     memory of a chip            GiB
     parameters                 1.59
     optimizer                  3.19
     average, teacher, batch    0.09
     activations, temporaries  84.53
     code                       0.16
     together, of 95: fits     89.56

     collective  among  count  MB a chip    ms  largest input
     all-reduce     64     10    2,080.7  3.47  f32[32768,768]
     all-gather     64      2      198.2  0.33  f32[512,768]

     a step at least              ms
     compute: matrix products  719.6
     hbm: memory               380.9
     ici: links between chips    3.8

     a step as the compiler expects it       ms
     operations                         1,230.5
     kernels of attention                 279.1
     links that nothing hides               3.8

    model FLOPs 1.722e+16 a step, compiled 2.114e+16 (1.23 times)
    at most 81.5% MFU and 45,538 images/s, bound by compute
    expected 38.7% MFU and 21,652 images/s, 1,513.4 ms a step

On v5e:16x16 with `--remat full`, 9.78 of 16 GiB a chip, 32.9% MFU and 31,554 images/s, 1,038.5 ms a step are
expected.
"""

from dataclasses import replace

from clip_b32 import experiment as base

from t5x_lite.models import PRESETS

experiment = replace(
    base,
    model=PRESETS["clip-l-14"],
    optimizer=replace(base.optimizer, schedule=replace(base.optimizer.schedule, peak=4e-4)),
)
