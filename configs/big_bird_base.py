"""BigBird base (Zaheer et al. 2020, section 4 and appendix E): masked tokens of rows of 4,096, block-sparse attention.

    python -m t5x_lite train configs/big_bird_base.py

256 rows a step, Adam with a peak rate of 1e-4 after 10,000 steps, 500,000 steps. The paper begins from RoBERTa and
reads Books, CC-News, Stories and Wikipedia; here it begins anew, and OpenWebText stands for them (24 GB of Parquet on
the Hugging Face hub). It needs accelerators and has not been run to its end by us. To try it on a laptop: add `--text
any_text.txt --steps 3 --batch-size 1 --precision.compute float32`.
"""

from dataclasses import replace

from roberta_base import experiment as base

from t5x_lite.data import SentencePiece
from t5x_lite.models import PRESETS
from t5x_lite.objectives import MaskedLanguageModel
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay

experiment = replace(
    base,
    model=replace(PRESETS["bigbird-roberta-base"], heads=("masked_lm",), pooler=False),
    objective=MaskedLanguageModel(input_length=4096, input_format="full-sentences"),
    # Trained on the corpus; the published one is SentencePiece(model_file="spiece.model", layout="big-bird").
    data=replace(base.data, tokenizer=SentencePiece(vocab_size=50_358, layout="big-bird")),
    optimizer=AdamW(LinearDecay(peak=1e-4, warmup_steps=10_000, total_steps=500_000)),
    steps=500_000,
    batch_size=256,
    accumulation=2,
    remat="dots",
)
