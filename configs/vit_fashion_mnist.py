"""A small ViT (Dosovitskiy et al. 2021) on Fashion-MNIST: 60,000 grey pictures of clothes, 28 x 28, in ten classes.

    F=fashion_mnist.npz
    python -m t5x_lite train configs/vit_fashion_mnist.py --data.source.path $F --data.held-out-source.path $F

The file has the arrays train_images, train_labels, test_images and test_labels. Patches
of 4 x 4, 0.4 M parameters, ten epochs; crops of at least 0.7 of the area, and flips. Half an hour on two CPU cores that
others shared. Of all 10,000 test pictures 89.4 % are correct (seed 0; the loss is 0.288, that of a guess 2.303).
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, ImageArrays
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import ViTConfig
from t5x_lite.objectives.image_classification import ImageClassification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging

CLASSES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
size, file = (28, 28), "fashion_mnist.npz"

experiment = Experiment(
    model=ViTConfig(
        size,
        4,
        1,
        embed_dim=96,
        num_heads=3,
        mlp_dim=192,
        num_layers=5,
        num_classes=10,
        pooling="mean",
    ),
    objective=ImageClassification(
        Augmentation(image_size=size, area=(0.7, 1.0), normalization="inception"), canvas_size=size, num_channels=1
    ),
    data=Data(
        ImageArrays(file, "train_images", "train_labels", CLASSES),
        tokenizer=None,
        held_out_source=ImageArrays(file, "test_images", "test_labels", CLASSES),
    ),
    optimizer=AdamW(CosineDecay(peak=2e-3, warmup_steps=300, total_steps=4680, floor=0.0), weight_decay=0.05),
    steps=4680,
    batch_size=128,
    evaluation=Evaluation(every=1560, rows=10_000, metrics=("accuracy",)),
    checkpoints=Checkpointing(every=1560),
    logging=Logging(every=50),
)
