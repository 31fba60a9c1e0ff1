"""CLIP with ViT-B/32 (Radford et al. 2021, section 2.5 and tables 18 and 20): 32 epochs of 400 million pairs.

    python -m t5x_lite train configs/clip_b32.py
    python -m t5x_lite plan configs/clip_b32.py --topology v5p:4x4x4

The authors' 400 million pairs are not to be had. The folder pairs holds Parquet files with the columns jpg (bytes of a
picture) and caption, as img2dataset writes them of lists such as LAION-400M; bpe_simple_vocab_16e6.txt.gz is in the
authors' repository. A random square of the scaled picture is the only augmentation. Class token and positions of
patches do not decay here, and do there. The authors report 63.2 % on ImageNet without its labels (table 11). It needs
accelerators: it has not been run to its end by us.

Recommended: v5p:4x4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    clip_b32 on v5p:4x4x4: 64 chips, 16 hosts; mesh data 64, fsdp 1, sequence 1, tensor 1; remat unroll
    151,277,313 parameters; a step of 32,768 rows

     memory of a chip            GiB
     parameters                 0.56
     optimizer                  1.13
     average, teacher, batch    0.09
     activations, temporaries  17.81
     code                       0.34
     together, of 95: fits     19.94

     collective  among  count  MB a chip    ms  largest input
     all-reduce     64      6      860.2  1.43  f32[32768,512]
     all-gather     64      1       66.1  0.11  f32[512,512]

     a step at least             ms
     compute: matrix products  51.1
     hbm: memory               57.9
     ici: links between chips   1.5

     a step as the compiler expects it     ms
     operations                         164.9
     kernels of attention                22.6
     links that nothing hides             1.4

    model FLOPs 1.445e+15 a step, compiled 1.502e+15 (1.04 times)
    at most 85.0% MFU and 566,362 images/s, bound by hbm
    expected 26.0% MFU and 173,430 images/s, 188.9 ms a step

On v5e:16x16, 256 chips, 6.82 of 16 GiB a chip, 31.4% MFU and 359,330 images/s, 91.2 ms a step are expected.
"""

from t5x_lite import Experiment
from t5x_lite.data import CaptionTable, ClipBPE, Data
from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ContrastiveLanguageImage
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

pairs = 400_000_000
steps = 32 * pairs // 32_768

experiment = Experiment(
    model=PRESETS["clip-b-32"],
    objective=ContrastiveLanguageImage(
        augmentation=Augmentation(area=None, position="random", flip=0.0, normalization="clip"), canvas_size=(256, 256)
    ),
    data=Data(
        CaptionTable("pairs", image="jpg", captions=("caption",), broken="skip"),
        ClipBPE("bpe_simple_vocab_16e6.txt.gz"),
        held_out=0.0001,
    ),
    optimizer=AdamW(
        CosineDecay(peak=5e-4, warmup_steps=2000, total_steps=steps, floor=0.0), b2=0.98, eps=1e-6, weight_decay=0.2
    ),
    steps=steps,
    batch_size=32_768,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5000, rows=32_768),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
    remat="unroll",
)
