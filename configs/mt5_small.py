"""mT5 small (Xue et al. 2021): T5 v1.1 over 101 languages, 10^6 steps of 1024 x 1024 tokens.

    python -m t5x_lite train configs/mt5_small.py

mC4 is read from the Hugging Face hub, 9.7 TB of compressed JSON, whose languages are mixed as they come (the paper
samples them by size ** 0.3). It needs accelerators: it has not been run to its end by us. The tokenizer is trained on
the corpus; to use the published one, add `--data.tokenizer.model-file spiece.model --data.tokenizer.extra-ids 0`.
"""

from dataclasses import replace

from t5_v1_1_base import experiment as base

from t5x_lite.data import Data, SentencePiece, TextFiles
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SpanCorruption

mc4 = "hf://datasets/allenai/c4/multilingual"

experiment = replace(
    base,
    model=replace(PRESETS["mt5-small"], dropout_rate=0.0),
    objective=SpanCorruption(input_length=1024, z_loss=1e-4),
    data=Data(
        source=TextFiles(tuple(f"{mc4}/c4-{language}.tfrecord-*.json.gz" for language in ("??", "???", "??-Latn"))),
        tokenizer=SentencePiece(vocab_size=250_000),
        held_out_source=TextFiles((f"{mc4}/c4-*-validation.tfrecord-*.json.gz",)),
    ),
    steps=1_000_000,
    batch_size=1024,
)
