"""Transformer-XL in miniature on the documentation that every Python carries: no download, any machine.

    python -m t5x_lite train configs/transformer_xl_tiny.py

About three minutes on two CPU cores, tokenizer and all: held-out loss 4.38 nats a token with a memory of 128, where a
unigram model of the same text has 6.17.
"""

from dataclasses import replace

from gpt_tiny import experiment as base

from t5x_lite.models import TransformerXLConfig
from t5x_lite.objectives import SegmentLanguageModel

experiment = replace(
    base,
    model=TransformerXLConfig(
        vocab_size=2048,
        embed_dim=128,
        num_heads=4,
        mlp_dim=512,
        num_layers=2,
        dropout_rate=0.0,
        cutoffs=(1024,),
    ),
    objective=SegmentLanguageModel(input_length=64, memory_length=64, evaluation_memory_length=128),
    optimizer=replace(base.optimizer, schedule=replace(base.optimizer.schedule, peak=1e-3)),
)
