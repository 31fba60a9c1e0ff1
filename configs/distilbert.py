"""DistilBERT (Sanh et al. 2019, section 3): six layers learn from BERT base, beginning as every second one of its own.

    python -m t5x_lite train configs/distilbert.py --objective.teacher FOLDER --start.folder FOLDER

The teacher is a run's folder (such as `runs/bert_base_512`) or a Hugging Face folder or name; its tokenizer is used.
About three epochs of Wikipedia in batches of 4,096 rows. configs/bert_base.py says what else it needs. The authors'
script takes layers 0, 2, 4, 7, 9 and 11, and soft targets over all tokens, not over the hidden ones alone.
"""

from dataclasses import replace

from bert_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.objectives import Distillation
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training.initialization import FromModel

TEACHER = "google-bert/bert-base-uncased"

experiment = replace(
    base,
    model=replace(PRESETS["distilbert-base-uncased"], heads=("masked_lm",)),
    objective=Distillation(input_length=512, teacher=TEACHER),
    optimizer=AdamW(
        LinearDecay(peak=5e-4, warmup_steps=1500, total_steps=30_000), b2=0.98, weight_decay=0.0, clip_norm=5.0
    ),
    steps=30_000,
    batch_size=4096,
    start=FromModel(TEACHER, layers=(0, 2, 4, 6, 8, 10)),
    checkpoints=replace(base.checkpoints, every=1000),
    evaluation=replace(base.evaluation, every=1000),
)
