"""ViT-B/16 on ImageNet-1k (Dosovitskiy et al. 2021, section 3.1 and table 3): 300 epochs, 4,096 pictures a batch.

    python -m t5x_lite train configs/vit_b16.py

The table's row of ImageNet. Crops of 5 % of a picture or more, flips and bilinear filters are those of the authors'
code. They report 77.9 % for this model after fine-tuning at 384 x 384 (table 5). It needs accelerators: it has not been
run to its end by us. It reads imagenet/train and imagenet/val, a folder a class.
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
    evaluation=Evaluation(every=2500, rows=50_000),
    checkpoints=Checkpointing(every=2500),
    logging=Logging(every=100),
)
