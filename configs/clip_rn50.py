"""CLIP with a ResNet-50 (Radford et al. 2021, section 2.5 and tables 18 and 19): 32 epochs of 400 million pairs.

    python -m t5x_lite train configs/clip_rn50.py
    python -m t5x_lite plan configs/clip_rn50.py --topology v5p:4x4x4

configs/clip_b32.py says what it needs. The ResNet is that of He et al. 2019 with attention at its end; it is
normalized over the batch of all devices. Adam has b2 = 0.999 and epsilon = 1e-8 here (table 18). The authors report
59.6 % on ImageNet without its labels (table 11). We have not run it.

Recommended: v5p:4x4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    clip_rn50 on v5p:4x4x4: 64 chips, 16 hosts; mesh data 64, fsdp 1, sequence 1, tensor 1; remat unroll
    102,007,137 parameters; a step of 32,768 rows

     memory of a chip            GiB
     parameters                 0.38
     optimizer                  0.76
     average, teacher, batch    0.09
     activations, temporaries  25.52
     code                       0.30
     together, of 95: fits     27.05

     collective  among  count  MB a chip    ms  largest input
     all-reduce     64    208      931.3  1.55  f32[32768,1024]
     all-gather     64      1      132.1  0.22  f32[512,1024]

     a step at least             ms
     compute: matrix products  59.5
     hbm: memory               90.7
     ici: links between chips   1.8

     a step as the compiler expects it     ms
     operations                         251.4
     kernels of attention                22.6
     links that nothing hides             1.6

    model FLOPs 1.718e+15 a step, compiled 1.748e+15 (1.02 times)
    at most 64.5% MFU and 361,344 images/s, bound by hbm
    expected 21.2% MFU and 118,932 images/s, 275.5 ms a step

On v5e:16x16, 8.44 of 16 GiB a chip, 21.0% MFU and 201,921 images/s, 162.3 ms a step are expected.
"""

from dataclasses import replace

from clip_b32 import experiment as base

from t5x_lite.models import PRESETS

experiment = replace(base, model=PRESETS["clip-rn50"], optimizer=replace(base.optimizer, b2=0.999, eps=1e-8))
