"""SpanBERT in miniature: spans and their boundaries, on the documentation that every Python carries.

python -m t5x_lite train configs/spanbert_tiny.py
"""

from dataclasses import replace

from bert_tiny import experiment as base

from t5x_lite.data import WordPiece
from t5x_lite.objectives import SpanBoundary

experiment = replace(
    base,
    model=replace(base.model, heads=("masked_lm", "span_boundary"), pooler=False),
    objective=SpanBoundary(input_length=64),
    data=replace(base.data, tokenizer=WordPiece(vocab_size=2048, lowercase=False)),
)
