"""mT5 small (Xue et al. 2021): T5 v1.1 over 101 languages, 10^6 steps of 1024 x 1024 tokens.

    python -m t5x_lite train configs/mt5_small.py

Needs mC4 (TensorFlow Datasets `c4/multilingual`, which mixes the languages as they come; the paper samples them by
size ** 0.3) and accelerators: it has not been run to its end by us. The tokenizer is trained on the corpus; to use
the published one, add `--data.tokenizer.model-file spiece.model --data.tokenizer.extra-ids 0`.
"""

from dataclasses import replace

from t5_v1_1_base import experiment as base

from t5x_lite.data import Data, SentencePiece, Tfds
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SpanCorruption

experiment = replace(
    base,
    model=replace(PRESETS["mt5-small"], dropout_rate=0.0),
    objective=SpanCorruption(input_length=1024, z_loss=1e-4),
    data=Data(source=Tfds("c4/multilingual"), tokenizer=SentencePiece(vocab_size=250_000), held_out=0.001),
    steps=1_000_000,
    batch_size=1024,
)
