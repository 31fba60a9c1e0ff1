"""A small BERT on novels, for two CPU cores: what the configs of tasks begin with.

    python -m t5x_lite train configs/gutenberg_bert.py --text novels/

The sizes are chosen for eight English novels of Project Gutenberg, 13.7 MB with a paragraph a line: 3.3 million tokens.
Measured there: 27 minutes at 16,000 tokens a second; at the end 3.94 nats a hidden token of held-out text, 33.5 % of
them right (5.91 nats without looking at the context). The first 2,000 steps learn little else than that.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import Data, TextFiles, WordPiece
from t5x_lite.models import BertConfig
from t5x_lite.objectives import MaskedLanguageModel
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging
from t5x_lite.training.initialization import FromModel

experiment = Experiment(
    model=BertConfig(
        vocab_size=8192,
        embed_dim=128,
        num_heads=4,
        mlp_dim=512,
        num_layers=4,
        max_length=256,
        # Seven passes, with other blanks each, do not wear the text out: held-out text is predicted as well.
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        heads=("masked_lm",),
    ),
    objective=MaskedLanguageModel(input_length=128),
    data=Data(source=TextFiles(("novels",)), tokenizer=WordPiece(vocab_size=8192), held_out=0.01),
    optimizer=AdamW(LinearDecay(peak=1e-3, warmup_steps=300, total_steps=6001), clip_norm=1.0),
    steps=6000,
    batch_size=32,
    evaluation=Evaluation(every=1000, rows=256),
    checkpoints=Checkpointing(every=1000, keep_last=1, keep_best=0),
    logging=Logging(every=50),
)

# What the configs of tasks begin with; a head, an objective and data take the place of those of pretraining.
fine_tuning = replace(
    experiment,
    model=replace(experiment.model, dropout_rate=0.1),
    optimizer=AdamW(LinearDecay(peak=5e-4, warmup_steps=60, total_steps=601), clip_norm=1.0),
    steps=600,
    start=FromModel("runs/gutenberg_bert"),
    evaluation=Evaluation(every=200, rows=4096),
    checkpoints=Checkpointing(every=0, keep_last=1, keep_best=0),
    logging=Logging(every=20),
)
