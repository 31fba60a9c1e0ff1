"""ViT-L/16 on ImageNet-21k (Dosovitskiy et al. 2021, section 3.1 and table 3): 90 epochs, 4,096 pictures a batch.

    python -m t5x_lite train configs/vit_l16.py
    python -m t5x_lite plan configs/vit_l16.py --topology v5e:8x8

The table's row of ImageNet-21k, for nobody but Google has JFT-300M. ImageNet-21k is given out by image-net.org: the
paper's has 14,197,122 pictures of 21,841 classes; for the release of 2021 add `--model.num-classes 19167`. It is read
as a folder a class from imagenet21k, of whose pictures 0.4 % are kept for evaluation. Crops and flips are those of
configs/vit_b16.py. The authors report 85.2 % on ImageNet-1k after fine-tuning at 384 x 384 (table 5). It needs
accelerators: it has not been run to its end by us.
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
    remat="dots",
    mesh=MeshShape(data=-1, fsdp=16),
)
