"""ViT-L/16 on ImageNet-21k (Dosovitskiy et al. 2021, section 3.1 and table 3): 90 epochs, 4,096 pictures a batch.

    python -m t5x_lite train configs/vit_l16.py
    python -m t5x_lite plan configs/vit_l16.py --topology v5e:8x8

The table's row of ImageNet-21k, for nobody but Google has JFT-300M. ImageNet-21k is given out by image-net.org: the
paper's has 14,197,122 pictures of 21,841 classes; for the release of 2021 add `--model.num-classes 19167`. It is read
as a folder a class from imagenet21k, of whose pictures 0.4 % are kept for evaluation. Crops and flips are those of
configs/vit_b16.py. The authors report 85.2 % on ImageNet-1k after fine-tuning at 384 x 384 (table 5). It needs
accelerators: it has not been run to its end by us.

Recommended: v5e:8x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    vit_l16 on v5e:8x8: 64 chips, 16 hosts; mesh data 4, fsdp 16, sequence 1, tensor 1; remat unroll
    326,738,257 parameters; a step of 4,096 rows in 2 parts

     memory of a chip           GiB
     parameters                0.08
     optimizer                 0.15
     average, teacher, batch   0.01
     activations, temporaries  7.18
     code                      0.40
     together, of 16: fits     7.81

     collective      among  count  MB a chip     ms  largest input
     all-gather         16    447    2,074.6  20.75  bf16[64,21841]
     reduce-scatter     16    246    1,212.7  12.13  f32[1024,21841]
     all-reduce         16      8      192.9   1.93  bf16[16,64,1024]
     all-reduce          4      3      122.3   2.45  f32[64,21841]
     all-reduce         64      5        5.1   0.05  bf16[196,1024]

     a step at least              ms
     compute: matrix products  125.7
     hbm: memory                92.5
     ici: links between chips   37.3

     a step as the compiler expects it     ms
     operations                         226.0
     kernels of attention                35.9
     links that nothing hides            20.2

    model FLOPs 1.513e+15 a step, compiled 1.585e+15 (1.05 times)
    at most 95.5% MFU and 32,590 images/s, bound by compute
    expected 42.5% MFU and 14,517 images/s, 282.2 ms a step
"""

from dataclasses import replace

from vit_b16 import experiment as base

from t5x_lite.data import Data, ImageFolder
from t5x_lite.models import PRESETS
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.parallel import MeshShape

steps = 90 * 14_197_122 // 4096

experiment = replace(
    base,
    model=replace(PRESETS["vit-l-16"], pooler=True, dropout_rate=0.1, num_classes=21_841),
    data=Data(ImageFolder("imagenet21k"), tokenizer=None, held_out=0.004),
    optimizer=AdamW(LinearDecay(peak=1e-3, warmup_steps=10_000, total_steps=steps), eps=1e-8, weight_decay=0.03),
    steps=steps,
    accumulation=2,
    mesh=MeshShape(data=-1, fsdp=16),
)
