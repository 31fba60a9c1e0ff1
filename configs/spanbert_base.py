"""SpanBERT base (Joshi et al. 2020, section 4.2): spans and their boundaries, 2.4 million steps of 256 rows of 512.

    python -m t5x_lite train configs/spanbert_base.py

Cased text, single segments of one document, masked afresh every time. configs/bert_base.py says what it needs.
"""

from dataclasses import replace

from bert_base import experiment as base

from t5x_lite.data import WordPiece
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SpanBoundary
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay

experiment = replace(
    base,
    model=replace(PRESETS["spanbert-base-cased"], heads=("masked_lm", "span_boundary"), pooler=False),
    objective=SpanBoundary(input_length=512),
    data=replace(base.data, tokenizer=WordPiece(vocab_size=28_996, lowercase=False)),
    optimizer=AdamW(
        LinearDecay(peak=1e-4, warmup_steps=10_000, total_steps=2_400_000), eps=1e-8, weight_decay=0.1, clip_norm=1.0
    ),
    steps=2_400_000,
)
