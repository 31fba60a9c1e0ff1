"""BigBird base (Zaheer et al. 2020, section 4 and appendix E): masked tokens of rows of 4,096, block-sparse attention.

    python -m t5x_lite train configs/big_bird_base.py
    python -m t5x_lite plan configs/big_bird_base.py --topology v5e:4x4

256 rows a step, Adam with a peak rate of 1e-4 after 10,000 steps, 500,000 steps. The paper begins from RoBERTa and
reads Books, CC-News, Stories and Wikipedia; here it begins anew, and OpenWebText stands for them (24 GB of Parquet on
the Hugging Face hub). It needs accelerators and has not been run to its end by us. To try it on a laptop: add `--text
any_text.txt --steps 3 --batch-size 2 --precision.compute float32`.

Recommended: v5e:4x4. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    big_bird_base on v5e:4x4: 16 chips, 4 hosts; mesh data 16, fsdp 1, sequence 1, tensor 1; remat dots
    127,520,694 parameters; a step of 256 rows in 2 parts, 1,048,576 tokens

     memory of a chip            GiB
     parameters                 0.48
     optimizer                  0.95
     average, teacher, batch    0.00
     activations, temporaries   9.56
     code                       0.04
     together, of 16: fits     11.03

     collective  among  count  MB a chip     ms  largest input
     all-reduce     16     53    1,536.8  15.37  f32[50358,768]

     a step at least              ms
     compute: matrix products  226.8
     hbm: memory               365.9
     ici: links between chips   15.4

     a step as the compiler expects it     ms
     operations                         771.3
     kernels of attention               206.7
     links that nothing hides            15.4

    model FLOPs 6.438e+14 a step, compiled 7.149e+14 (1.11 times)
    at most 55.8% MFU and 2,865,946 tokens/s, bound by hbm
    expected 20.6% MFU and 1,055,621 tokens/s, 993.3 ms a step

The same model with attention to all tokens needs 1.7 times as long a layer's attention at this length, and 12 times at
32,768 (benchmarks/README.md).
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
    dropout_prng="hash",
)
