"""CLIP with ViT-B/16 (Radford et al. 2021, section 2.5 and tables 18 and 20): 32 epochs of 400 million pairs.

    python -m t5x_lite train configs/clip_b16.py
    python -m t5x_lite plan configs/clip_b16.py --topology v5p:4x4x4

configs/clip_b32.py says what it needs; patches are of 16 x 16 pixels, four times as many. The authors report 68.3 % on
ImageNet without its labels (table 11). We have not run it.

Recommended: v5p:4x4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    clip_b16 on v5p:4x4x4: 64 chips, 16 hosts; mesh data 64, fsdp 1, sequence 1, tensor 1; remat unroll
    149,620,737 parameters; a step of 32,768 rows

     memory of a chip            GiB
     parameters                 0.56
     optimizer                  1.11
     average, teacher, batch    0.09
     activations, temporaries  31.91
     code                       0.34
     together, of 95: fits     34.02

     collective  among  count  MB a chip    ms  largest input
     all-reduce     64      6      853.6  1.42  f32[32768,512]
     all-gather     64      1       66.1  0.11  f32[512,512]

     a step at least              ms
     compute: matrix products  146.5
     hbm: memory               127.3
     ici: links between chips    1.5

     a step as the compiler expects it     ms
     operations                         360.3
     kernels of attention                78.5
     links that nothing hides             1.4

    model FLOPs 4.032e+15 a step, compiled 4.304e+15 (1.07 times)
    at most 93.7% MFU and 223,648 images/s, bound by compute
    expected 31.2% MFU and 74,431 images/s, 440.2 ms a step

On v5e:16x16, 10.74 of 16 GiB a chip, 36.0% MFU and 147,717 images/s, 221.8 ms a step are expected.
"""

from dataclasses import replace

from clip_b32 import experiment as base

from t5x_lite.models import PRESETS

experiment = replace(base, model=PRESETS["clip-b-16"])
