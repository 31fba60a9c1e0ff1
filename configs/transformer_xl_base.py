"""Transformer-XL base on WikiText-103 (Dai et al. 2019, table 1 and their script): 200,000 steps, 60 rows of 150 words.

    python -m t5x_lite train configs/transformer_xl_base.py
    python -m t5x_lite evaluate runs/transformer_xl_base --memory-length 640

Words, not pieces: 267,735 of them, an adaptive softmax, and no accuracy, which that does not have. The paper reports a
test perplexity of 24.0 with a memory of 640, for segments of 64; here segments stay as long as in training.

The 103 million words are read from the Hugging Face hub. It needs accelerators and has not been run to its end by us.
To try it on a laptop: add `--text any_text.txt --steps 3 --batch-size 2 --precision.compute float32`.
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, TextFiles, Words
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SegmentLanguageModel
from t5x_lite.optim.optimizers import Adam
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

wikitext = "hf://datasets/Salesforce/wikitext/wikitext-103-v1"

experiment = Experiment(
    model=PRESETS["transfo-xl-base-wt103"],
    objective=SegmentLanguageModel(150, memory_length=150, evaluation_memory_length=640, same_length=True),
    data=Data(
        source=TextFiles((f"{wikitext}/train-*.parquet",)),
        tokenizer=Words(267_735),
        held_out_source=TextFiles((f"{wikitext}/validation-*.parquet",)),
    ),
    optimizer=Adam(CosineDecay(peak=2.5e-4, warmup_steps=0, total_steps=200_000), clip_norm=0.25, b2=0.999, eps=1e-8),
    steps=200_000,
    batch_size=60,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=4000, rows=4096),
    checkpoints=Checkpointing(every=4000),
    logging=Logging(every=200),
)
