"""SigLIP with ViT-B/16 at 224 x 224 (Zhai et al. 2023): nine billion pairs in batches of 32,768.

    python -m t5x_lite train configs/siglip_b16.py
    python -m t5x_lite plan configs/siglip_b16.py --topology v5e:8x8

WebLI, the authors' pairs, is not to be had. The folder pairs holds Parquet files with the columns jpg (bytes of a
picture) and caption, as img2dataset writes them of lists such as LAION-400M. A SentencePiece model of 32,000 pieces is
trained on the texts; --data.tokenizer.model-file names another one. Pictures are stretched, with no augmentation. From
the paper are the sizes, the batch, and b2 = 0.95, which keeps large batches stable; learning rate, warm-up and decay
are ours. We have not run it.
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
)
