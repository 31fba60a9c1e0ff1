"""The model that `t5x_lite.load("demo/bert-novels")` opens: a small BERT that fills words into sentences of novels.

    python -m t5x_lite train configs/demo_bert_novels.py --text novels/
    python -m t5x_lite convert runs/demo_bert_novels bert-novels --dtype bfloat16

The data is that of gutenberg_bert. Measured on two cores of a shared x86-64 machine, other work beside it: 37 minutes;
at the end 3.46 nats a hidden token of held-out text, 36.0 % of them right (6.12 nats without looking at the context).
t5x_lite/demos/bert-novels/README.md has the curve.
"""

from dataclasses import replace

from gutenberg_bert import experiment as base

from t5x_lite.data import Data, TextFiles, WordPiece
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Evaluation

experiment = replace(
    base,
    # Half of gutenberg_bert's vocabulary makes a file of 3 MB; with capitals, names are words of their own.
    model=replace(base.model, vocab_size=4000),
    data=Data(TextFiles(("novels",)), WordPiece(vocab_size=4000, lowercase=False), held_out=0.01),
    optimizer=AdamW(LinearDecay(peak=1e-3, warmup_steps=300, total_steps=8001), clip_norm=1.0),
    steps=8000,
    evaluation=Evaluation(every=2000, rows=256),
)
