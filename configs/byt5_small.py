"""ByT5 small (Xue et al. 2022): bytes instead of pieces, spans of 20 bytes, 10^6 steps of 1024 x 1024 bytes.

    python -m t5x_lite train configs/byt5_small.py

The corpus is mT5's; configs/mt5_small.py says what it needs. No tokenizer is trained. To try it on a laptop: add
`--text any_text.txt --steps 3 --batch-size 2 --precision.compute float32`.
"""

from dataclasses import replace

from mt5_small import experiment as base

from t5x_lite.data import Bytes
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SpanCorruption

experiment = replace(
    base,
    model=replace(PRESETS["byt5-small"], dropout_rate=0.0),
    objective=SpanCorruption(input_length=1024, mean_span_length=20.0, z_loss=1e-4),
    data=replace(base.data, tokenizer=Bytes()),
)
