"""MASS on English and German text (Song et al. 2019, section 4.1): a masked span of half a sentence.

    python -m t5x_lite train configs/mass_base.py

Transformers of 6 + 6 layers of 1,024; Adam at 1e-4 with an inverse square root; a batch of 48 rows of 256, as many
tokens as 3,000 on each of four devices. The paper's text is a WMT news crawl, which OpenWebText stands for. It needs
accelerators and has not been run to its end by us. To try it on a laptop: add `--text any_text.txt --steps 3
--batch-size 2 --precision.compute float32`. configs/mass_tiny_finetune.py shows how pairs go on from it.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import Data, SentencePiece, TextFiles
from t5x_lite.models import PRESETS
from t5x_lite.objectives import MaskedSequenceToSequence
from t5x_lite.optim.optimizers import Adam
from t5x_lite.optim.schedules import InverseSqrt
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

experiment = Experiment(
    model=replace(PRESETS["transformer-big-en-de"], vocab_size=60_000),
    objective=MaskedSequenceToSequence(input_length=256),
    data=Data(
        source=TextFiles(("hf://datasets/Skylion007/openwebtext/plain_text/train-*.parquet",)),
        tokenizer=SentencePiece(vocab_size=60_000, extra_ids=0, algorithm="bpe"),
        held_out=0.001,
    ),
    # Of 1e-4 at its peak, after 4,000 steps.
    optimizer=Adam(InverseSqrt(embed_dim=1024, warmup_steps=4000, factor=0.2), b1=0.9, b2=0.98, eps=1e-9),
    steps=500_000,
    batch_size=48,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5000, rows=1024),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
)
