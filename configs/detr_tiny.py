"""A DETR in miniature (Carion et al. 2020) on pictures of blood cells: 205 to train on, 87 held out.

    F=annotations_coco.json
    python -m t5x_lite train configs/detr_tiny.py --data.source.path $F --data.held-out-source.path $F

The images in the JSON file have a field split (train, val or test); the pictures are in the folder images_320x240. On
the canvas they have 96 x 128 pixels, a red cell about 20, a platelet 8.

35 minutes on two CPU cores that others shared, one seed. AP50 on held-out pictures by steps of a thousand: 4.5, 19.5,
37.1, 45.6, 59.1, 58.8, 60.5, 62.0 %, by `evaluate` with a 95 % interval of 57.8 to 67.7; AP 35.8 % (33.8 to 38.9), of
small objects 6.1, medium 30.6, large 66.8 %. For 2,000 steps queries give boxes of the usual places and look at little;
then they find the cells. Twice the height and four times the parameters had 18.8 and 31.8 % in two tries after 1,000
steps, which took half as long. What is left to find are platelets, which have a pixel on the feature map, and red cells
that overlap, of which some are found twice.
"""

from t5x_lite import Experiment
from t5x_lite.data import CocoBoxes, Data
from t5x_lite.images.box_augmentation import BoxAugmentation
from t5x_lite.models import DetrConfig, ResNetConfig
from t5x_lite.objectives import ObjectDetection
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging

SOURCE = CocoBoxes("annotations_coco.json", "images_320x240", split=("split", "train"))

experiment = Experiment(
    model=DetrConfig(
        backbone=ResNetConfig((1, 1), (32, 64), bottleneck=False, stem="deep", stem_width=32, heads=()),
        num_classes=3,
        num_queries=40,
        embed_dim=64,
        num_heads=4,
        mlp_dim=256,
        num_encoder_layers=2,
        num_decoder_layers=3,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        mlp_dropout_rate=0.0,
    ),
    objective=ObjectDetection(
        augmentation=BoxAugmentation(
            image_size=(96, 128),
            short_sides=(80, 88, 96),
            longest=128,
            crop_short_sides=(120,),
            crop_sides=(80, 160),
        ),
        canvas_size=(120, 160),
        max_boxes=32,
    ),
    data=Data(
        SOURCE,
        None,
        held_out_source=CocoBoxes("annotations_coco.json", "images_320x240", split=("split", "val")),
    ),
    optimizer=AdamW(
        CosineDecay(peak=1e-3, warmup_steps=100, total_steps=8000, floor=0.0), 0.1, eps=1e-8, weight_decay=1e-4
    ),
    steps=8000,
    batch_size=16,
    evaluation=Evaluation(every=1000, rows=87, metrics=("average_precision",)),
    checkpoints=Checkpointing(every=1000),
    logging=Logging(every=100),
)
