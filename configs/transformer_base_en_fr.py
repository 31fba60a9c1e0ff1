"""The Transformer of Vaswani et al. 2017, base, on WMT14 English-French: 36 million pairs, 32,000 pieces.

    python -m t5x_lite train configs/transformer_base_en_fr.py

All else is as in configs/transformer_base.py. The paper reports 38.1 BLEU of tokens.
"""

from dataclasses import replace

from transformer_base import experiment as base

from t5x_lite.data import ParquetFiles, TextTemplate, TextToText
from t5x_lite.models import PRESETS

wmt14 = "hf://datasets/wmt/wmt14/fr-en"
template = TextTemplate("{translation/en}", "{translation/fr}")

experiment = replace(
    base,
    model=PRESETS["transformer-base-en-fr"],
    data=replace(
        base.data,
        source=TextToText(ParquetFiles((f"{wmt14}/train-*.parquet",)), template, empty="skip"),
        tokenizer=replace(base.data.tokenizer, vocab_size=32_000),
        held_out_source=TextToText(ParquetFiles((f"{wmt14}/validation-*.parquet",)), template),
    ),
)
