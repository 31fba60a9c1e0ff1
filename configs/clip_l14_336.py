"""CLIP with ViT-L/14 at 336 x 336 (Radford et al. 2021, section 2.5 and table 18): one more epoch after clip_l14.

    python -m t5x_lite train configs/clip_l14_336.py --start.folder runs/clip_l14
    python -m t5x_lite plan configs/clip_l14_336.py --topology v5p:4x4x4

configs/clip_l14.py comes before it: positions of 16 x 16 patches are interpolated to 24 x 24. The authors learn at
2e-5 and report 76.2 % on ImageNet without its labels (table 11). We have not run it.

Recommended: v5p:4x4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    clip_l14_336 on v5p:4x4x4: 64 chips, 16 hosts; mesh data 64, fsdp 1, sequence 1, tensor 1; remat full
    427,944,193 parameters; a step of 32,768 rows

     memory of a chip            GiB
     parameters                 1.59
     optimizer                  3.19
     average, teacher, batch    0.21
     activations, temporaries  28.00
     code                       0.07
     together, of 95: fits     33.06

     collective  among  count  MB a chip    ms  largest input
     all-reduce     64     76    2,081.9  3.47  f32[32768,768]
     all-gather     64     13    1,288.2  2.15  f32[512,768]

     a step at least                ms
     compute: matrix products  1,840.8
     hbm: memory                 925.1
     ici: links between chips      5.6

     a step as the compiler expects it       ms
     operations                         2,762.4
     kernels of attention               1,610.2
     links that nothing hides               3.5

    model FLOPs 3.884e+16 a step, compiled 5.408e+16 (1.39 times)
    at most 71.8% MFU and 17,801 images/s, bound by compute
    expected 30.2% MFU and 7,488 images/s, 4,376.1 ms a step

On v5e:16x16, 13.30 of 16 GiB a chip, 27.9% MFU and 11,892 images/s, 2,755.5 ms a step are expected.
"""

from dataclasses import replace

from clip_b32 import pairs
from clip_l14 import experiment as base

from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ContrastiveLanguageImage
from t5x_lite.training.initialization import FromModel

SIZE = (336, 336)
steps = pairs // 32_768

experiment = replace(
    base,
    model=PRESETS["clip-l-14-336"],
    objective=ContrastiveLanguageImage(
        augmentation=Augmentation(SIZE, area=None, position="random", flip=0.0, normalization="clip"),
        canvas_size=(384, 384),
    ),
    start=FromModel("runs/clip_l14"),
    optimizer=replace(base.optimizer, schedule=replace(base.optimizer.schedule, peak=2e-5, total_steps=steps)),
    steps=steps,
    remat="full",
)
