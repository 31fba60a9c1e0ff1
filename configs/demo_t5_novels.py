"""The model that `t5x_lite.load("demo/t5-novels")` opens: a small T5 that fills blanks in sentences of novels.

    python -m t5x_lite train configs/demo_t5_novels.py --text novels/
    python -m t5x_lite convert runs/demo_t5_novels t5-novels --dtype bfloat16

The sizes are chosen for eight English novels of Project Gutenberg, 13.7 MB with a paragraph a line. Measured on two
cores of a shared x86-64 machine: 21 minutes; at the end 3.30 nats a token of held-out targets, 39.1 % of them right
(5.50 nats without looking at the input). t5x_lite/demos/t5-novels/README.md has the curve.
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, SentencePiece, TextFiles
from t5x_lite.models import T5Config
from t5x_lite.objectives import SpanCorruption
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging

experiment = Experiment(
    # In bfloat16 a file of 3 MB.
    model=T5Config(
        vocab_size=3200,
        embed_dim=128,
        num_heads=4,
        head_dim=32,
        mlp_dim=512,
        num_encoder_layers=3,
        num_decoder_layers=2,
        dropout_rate=0.0,
    ),
    objective=SpanCorruption(input_length=128),
    data=Data(TextFiles(("novels",)), SentencePiece(vocab_size=3100), held_out=0.01),
    optimizer=Adafactor(LinearDecay(peak=4e-2, warmup_steps=300, total_steps=6001)),
    steps=6000,
    batch_size=32,
    evaluation=Evaluation(every=2000, rows=256),
    checkpoints=Checkpointing(every=1000, keep_last=1, keep_best=0),
    logging=Logging(every=50),
)
