"""RoBERTa base (Liu et al. 2019, table 9): full sentences, dynamic masks, 500,000 steps of 8,192 rows of 512.

    python -m t5x_lite train configs/roberta_base.py

The paper's 160 GB are BooksCorpus, Wikipedia, CC-News, OpenWebText and Stories; here OpenWebText stands for them (24 GB
of Parquet on the Hugging Face hub). It needs accelerators and has not been run to its end by us. To try it on a laptop:
add `--text any_text.txt --steps 3 --batch-size 2 --precision.compute float32`. Cut the batch up with `--accumulation`
where memory is short.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import ByteLevelBPE, Data, TextFiles
from t5x_lite.models import PRESETS
from t5x_lite.objectives import MaskedLanguageModel
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

experiment = Experiment(
    model=replace(PRESETS["roberta-base"], heads=("masked_lm",), pooler=False),
    objective=MaskedLanguageModel(input_length=512, input_format="full-sentences"),
    # Trained on the corpus; the published one is GPT-2's: ByteLevelBPE(file="vocab.json").
    data=Data(
        source=TextFiles(("hf://datasets/Skylion007/openwebtext/plain_text/train-*.parquet",)),
        tokenizer=ByteLevelBPE(vocab_size=50_265),
        held_out=0.001,
    ),
    optimizer=AdamW(LinearDecay(peak=6e-4, warmup_steps=24_000, total_steps=500_000), b2=0.98, eps=1e-6),
    steps=500_000,
    batch_size=8192,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5000, rows=4096),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
)
