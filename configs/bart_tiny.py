"""BART in miniature (infilling and permuted sentences) on the documentation that every Python carries: no download.

    python -m t5x_lite train configs/bart_tiny.py

About two and a half minutes on two CPU cores, tokenizer and all. Held-out loss 4.18 nats a token, where a unigram
model of the same text has 6.17.
"""

from dataclasses import replace

from gpt_tiny import experiment as base

from t5x_lite.models import BartConfig
from t5x_lite.objectives import BartDenoising
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay

experiment = replace(
    base,
    model=BartConfig(
        vocab_size=2048,
        embed_dim=128,
        num_heads=4,
        mlp_dim=512,
        num_encoder_layers=2,
        num_decoder_layers=2,
        max_length=128,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
    ),
    objective=BartDenoising(input_length=64),
    optimizer=AdamW(LinearDecay(peak=2e-3, warmup_steps=50, total_steps=601), clip_norm=1.0, b2=0.98),
    steps=600,
)
