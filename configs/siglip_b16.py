"""SigLIP with ViT-B/16 at 224 x 224 (Zhai et al. 2023): nine billion pairs in batches of 32,768.

    python -m t5x_lite train configs/siglip_b16.py
    python -m t5x_lite plan configs/siglip_b16.py --topology v5e:16x16

WebLI, the authors' pairs, is not to be had. The folder pairs holds Parquet files with the columns jpg (bytes of a
picture) and caption, as img2dataset writes them of lists such as LAION-400M. A SentencePiece model of 32,000 pieces is
trained on the texts; --data.tokenizer.model-file names another one. Pictures are stretched, with no augmentation. From
the paper are the sizes, the batch, and b2 = 0.95, which keeps large batches stable; learning rate, warm-up and decay
are ours. We have not run it.

Recommended: v5e:16x16, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    siglip_b16 on v5e:16x16: 256 chips, 64 hosts; mesh data 256, fsdp 1, sequence 1, tensor 1; remat unroll
    203,155,970 parameters; a step of 32,768 rows

     memory of a chip            GiB
     parameters                 0.76
     optimizer                  1.51
     average, teacher, batch    0.02
     activations, temporaries   9.16
     code                       0.32
     together, of 16: fits     11.77

     collective  among  count  MB a chip    ms  largest input
     all-reduce    256      6    1,010.3  5.05  f32[32768,768]
     all-gather    256      1      100.3  0.50  f32[128,768]

     a step at least             ms
     compute: matrix products  96.3
     hbm: memory               83.2
     ici: links between chips   5.6

     a step as the compiler expects it     ms
     operations                         193.2
     kernels of attention                43.5
     links that nothing hides             5.1

    model FLOPs 4.565e+15 a step, compiled 4.858e+15 (1.06 times)
    at most 94.0% MFU and 340,154 images/s, bound by compute
    expected 37.4% MFU and 135,541 images/s, 241.8 ms a step

On v5p:4x4x4, 36.14 of 95 GiB a chip, 31.7% MFU and 66,764 images/s, 490.8 ms a step are expected.
"""

from t5x_lite import Experiment
from t5x_lite.data import CaptionTable, Data, SentencePiece
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SigmoidLanguageImage
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

steps = 9_000_000_000 // 32_768

experiment = Experiment(
    model=PRESETS["siglip-b-16-224"],
    objective=SigmoidLanguageImage(canvas_size=(224, 224)),
    data=Data(
        CaptionTable("pairs", image="jpg", captions=("caption",), broken="skip"),
        SentencePiece(32_000, 0, layout="siglip"),
        held_out=0.0001,
    ),
    optimizer=AdamW(
        CosineDecay(peak=1e-3, warmup_steps=20_000, total_steps=steps, floor=0.0), 1.0, b2=0.95, weight_decay=1e-4
    ),
    steps=steps,
    batch_size=32_768,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5000, rows=32_768),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
    remat="unroll",
)
