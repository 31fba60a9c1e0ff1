"""BART base (Lewis et al. 2020): spans and the order of sentences are restored, 8,000 rows of 512, 500,000 steps.

    python -m t5x_lite train configs/bart_base.py
    python -m t5x_lite train configs/bart_base_without_dropout.py      # the last tenth

Section 5.1: text infilling of 30 % in spans of Poisson(3), all sentences permuted, and no dropout in the last tenth of
the steps. The paper names no optimizer; it takes batch and steps from RoBERTa, whose optimizer for base this is (Liu et
al. 2019, table 9).

The paper's 160 GB are RoBERTa's; here OpenWebText stands for them (24 GB of Parquet on the Hugging Face hub). It
needs accelerators and has not been run to its end by us. To try it on a laptop: add `--text any_text.txt --steps 3
--batch-size 2 --precision.compute float32`. Cut the batch up with `--accumulation` where memory is short.
"""

from t5x_lite import Experiment
from t5x_lite.data import ByteLevelBPE, Data, TextFiles
from t5x_lite.models import PRESETS
from t5x_lite.objectives import BartDenoising
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

experiment = Experiment(
    model=PRESETS["bart-base"],
    objective=BartDenoising(input_length=512, infilling_rate=0.3, mean_span_length=3.0, permute_sentences=True),
    # Trained on the corpus; the published one is GPT-2's: ByteLevelBPE(file="vocab.json").
    data=Data(
        source=TextFiles(("hf://datasets/Skylion007/openwebtext/plain_text/train-*.parquet",)),
        tokenizer=ByteLevelBPE(vocab_size=50_265),
        held_out=0.001,
    ),
    optimizer=AdamW(LinearDecay(peak=6e-4, warmup_steps=24_000, total_steps=500_000), b2=0.98, eps=1e-6),
    steps=450_000,
    batch_size=8000,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5000, rows=4096),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
)
