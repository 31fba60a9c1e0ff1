"""ALBERT base (Lan et al. 2020, section 4.1): sentence order, n-grams, LAMB, 125,000 steps of 4,096 rows of 512.

    python -m t5x_lite train configs/albert_base.py

configs/bert_base.py says what it needs. Cut the batch up with `--accumulation` where memory is short.
"""

from dataclasses import replace

from bert_base import experiment as base

from t5x_lite.data import SentencePiece
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SentenceOrderPrediction
from t5x_lite.optim.optimizers import Lamb
from t5x_lite.optim.schedules import LinearDecay

experiment = replace(
    base,
    model=replace(PRESETS["albert-base-v1"], heads=("masked_lm", "sentence_pair")),
    objective=SentenceOrderPrediction(input_length=512),
    data=replace(base.data, tokenizer=SentencePiece(vocab_size=30_000, layout="albert")),
    optimizer=Lamb(LinearDecay(peak=1.76e-3, warmup_steps=3125, total_steps=125_000), clip_norm=1.0),
    steps=125_000,
    batch_size=4096,
    remat="dots",
    checkpoints=replace(base.checkpoints, every=2500),
    evaluation=replace(base.evaluation, every=2500),
)
