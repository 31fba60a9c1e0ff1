"""XLM-R base (Conneau et al. 2020): RoBERTa in a hundred languages, 1.5 million steps of 8,192 rows.

    python -m t5x_lite train configs/xlmr_base.py

The paper's corpus is CC-100, whose languages it samples by size ** 0.3; mC4 stands for it here, whose
languages are mixed as they come (configs/mt5_small.py). The paper gives no learning rate for base; RoBERTa's is
taken. configs/roberta_base.py says what a run needs.
"""

from dataclasses import replace

from mt5_small import experiment as mt5_small
from roberta_base import experiment as base

from t5x_lite.data import SentencePiece
from t5x_lite.models import PRESETS
from t5x_lite.optim.schedules import LinearDecay

experiment = replace(
    base,
    model=replace(PRESETS["xlm-roberta-base"], heads=("masked_lm",), pooler=False),
    # The model has 250,002 rows: the pieces, the mask token, and <pad>, which fairseq puts between.
    data=replace(mt5_small.data, tokenizer=SentencePiece(vocab_size=250_000, layout="xlm-roberta")),
    optimizer=replace(base.optimizer, schedule=LinearDecay(peak=6e-4, warmup_steps=24_000, total_steps=1_500_000)),
    steps=1_500_000,
)
