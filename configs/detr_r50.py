"""DETR with a ResNet-50 (Carion et al. 2020, section 4): 300 epochs of COCO, with the rate a tenth after 200.

    python -m t5x_lite train configs/detr_r50.py
    python -m t5x_lite plan configs/detr_r50.py --topology v5p:2x2x4

The folder coco holds train2017, val2017 and annotations, as COCO's archives have them. The backbone begins as a
ResNet-50 of ImageNet-1k: its norms are frozen, its stem and first stage too, and the rest of it learns at a tenth of
the rate. Canvases of 1344 x 1344 have room for every picture at every scale; smaller ones, such as
--objective.augmentation.image-size 1088 1088, take less time, and wide pictures are scaled down to fit. In the
published model every parameter decays; here norms and biases do not. The authors report an AP of 40.6 on val2017
(table 2), and 42.0 after 500 epochs (table 1). We have not run it.

Recommended: v5p:2x2x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    detr_r50 on v5p:2x2x4: 16 chips, 4 hosts; mesh data 16, fsdp 1, sequence 1, tensor 1; remat none
    41,524,768 parameters; a step of 64 rows

     memory of a chip           GiB
     parameters                0.16
     optimizer                 0.31
     average, teacher, batch   0.00
     activations, temporaries  4.23
     code                      0.14
     together, of 95: fits     4.84

     collective  among  count  MB a chip    ms  largest input
     all-reduce     16     16      157.2  0.52  bf16[3,3,512,512]

     a step at least             ms
     compute: matrix products     9
     hbm: memory               19.1
     ici: links between chips  0.52

     a step as the compiler expects it    ms
     operations                         70.6
     kernels of attention                8.3
     links that nothing hides           0.52

    model FLOPs 6.698e+13 a step, compiled 6.644e+13 (0.99 times)
    at most 47.7% MFU and 3,349 images/s, bound by hbm
    expected 11.5% MFU and 806 images/s, 79.4 ms a step
    and 2.96 ms more for each further round of loops whose length the data decide

On v5e:4x4, 4.76 of 16 GiB a chip, 11.6% MFU and 349 images/s, 183.3 ms a step are expected, and 2.64 ms for each
further round.
"""

from t5x_lite import Experiment
from t5x_lite.data import CocoBoxes, Data
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ObjectDetection
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import StepDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision
from t5x_lite.training.initialization import FromModel

EPOCH = 118_287 // 64

experiment = Experiment(
    model=PRESETS["detr-resnet-50"],
    objective=ObjectDetection(canvas_size=(640, 640)),
    data=Data(
        CocoBoxes("coco/annotations/instances_train2017.json", "coco/train2017", numbering="ids", bad_boxes="drop"),
        None,
        held_out_source=CocoBoxes(
            "coco/annotations/instances_val2017.json", "coco/val2017", numbering="ids", bad_boxes="drop"
        ),
    ),
    start=FromModel("microsoft/resnet-50"),
    optimizer=AdamW(
        StepDecay(peak=1e-4, start=1e-4, warmup_steps=0, boundaries=(200 * EPOCH,), factor=0.1),
        0.1,
        eps=1e-8,
        weight_decay=1e-4,
        frozen=("backbone/stem*", "backbone/stage1*"),
        rates=(("backbone/*", 0.1),),
    ),
    steps=300 * EPOCH,
    batch_size=64,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=10 * EPOCH, rows=5000, metrics=("average_precision",)),
    checkpoints=Checkpointing(every=EPOCH),
    logging=Logging(every=100),
)
