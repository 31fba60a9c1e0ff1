"""ViT-B/16 on ImageNet-1k (Dosovitskiy et al. 2021, section 3.1 and table 3): 300 epochs, 4,096 pictures a batch.

    python -m t5x_lite train configs/vit_b16.py
    python -m t5x_lite plan configs/vit_b16.py --topology v5e:8x8

The table's row of ImageNet. Crops of 5 % of a picture or more, flips and bilinear filters are those of the authors'
code. They report 77.9 % for this model after fine-tuning at 384 x 384 (table 5). It needs accelerators: it has not been
run to its end by us. It reads imagenet/train and imagenet/val, a folder a class.

Recommended: v5e:8x8, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    vit_b16 on v5e:8x8: 64 chips, 16 hosts; mesh data 64, fsdp 1, sequence 1, tensor 1; remat unroll
    87,158,248 parameters; a step of 4,096 rows

     memory of a chip           GiB
     parameters                0.32
     optimizer                 0.65
     average, teacher, batch   0.01
     activations, temporaries  4.75
     code                      0.17
     together, of 16: fits     5.90

     collective  among  count  MB a chip    ms  largest input
     all-reduce     64      3      346.4  3.46  bf16[1,768,3072]

     a step at least             ms
     compute: matrix products  36.4
     hbm: memory               32.2
     ici: links between chips   3.5

     a step as the compiler expects it    ms
     operations                         78.2
     kernels of attention               14.3
     links that nothing hides            3.5

    model FLOPs 4.317e+14 a step, compiled 4.583e+14 (1.06 times)
    at most 94.2% MFU and 112,672 images/s, bound by compute
    expected 35.7% MFU and 42,707 images/s, 95.9 ms a step
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import Data, ImageFolder
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ImageClassification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

imagenet = Data(ImageFolder("imagenet/train"), tokenizer=None, held_out_source=ImageFolder("imagenet/val"))
train_pictures = 1_281_167
steps = 300 * train_pictures // 4096

experiment = Experiment(
    # In pretraining the head has a hidden layer, with tanh.
    model=replace(PRESETS["vit-b-16"], pooler=True, dropout_rate=0.1),
    objective=ImageClassification(
        Augmentation(resize=256, area=(0.05, 1.0), interpolation="bilinear", normalization="inception"),
        canvas_size=(256, 256),
    ),
    data=imagenet,
    optimizer=AdamW(
        CosineDecay(peak=3e-3, warmup_steps=10_000, total_steps=steps, floor=0.0),
        clip_norm=1.0,
        eps=1e-8,
        weight_decay=0.3,
    ),
    steps=steps,
    batch_size=4096,
    precision=Precision("bfloat16"),
    dropout_prng="hash",
    remat="unroll",
    evaluation=Evaluation(every=2500, rows=50_000),
    checkpoints=Checkpointing(every=2500),
    logging=Logging(every=100),
)
