"""BigBird base on whole reviews (Zaheer et al. 2020, appendix E.4): IMDb, rows of 4,096 tokens, 64 of them a step.

    python -m t5x_lite train configs/big_bird_base_imdb.py --start.folder google/bigbird-roberta-base

A rate of 1e-5, ten epochs. Any texts with labels are this with another source: `--examples train.jsonl` has {"text":
..., "label": ...} a line, and `data.source.labels` their names. Needs the task on disk or the means to prepare it
(TensorFlow Datasets `imdb_reviews/plain_text`), and accelerators: it has not been run to its end by us.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import Data, LabeledTexts, SentencePiece, Tfds
from t5x_lite.models import PRESETS
from t5x_lite.objectives import Classification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision
from t5x_lite.training.initialization import FromModel

STEPS = 10 * 25_000 // 64


def reviews(split: str) -> LabeledTexts:
    return LabeledTexts(Tfds("imdb_reviews/plain_text", split), labels=("neg", "pos"))


experiment = Experiment(
    model=replace(PRESETS["bigbird-roberta-base"], heads=("classification",), num_classes=2),
    objective=Classification(input_length=4096),
    # The tokenizer is that of the model that it starts from.
    data=Data(
        source=reviews("train"),
        held_out_source=reviews("test"),
        tokenizer=SentencePiece(vocab_size=50_358, layout="big-bird"),
    ),
    optimizer=AdamW(
        LinearDecay(peak=1e-5, warmup_steps=STEPS // 10, total_steps=STEPS + 1), weight_decay=0.01, clip_norm=1.0
    ),
    steps=STEPS,
    batch_size=64,
    start=FromModel("google/bigbird-roberta-base"),
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=500, rows=25_000, metrics=("f1",)),
    checkpoints=Checkpointing(every=500),
    logging=Logging(every=50),
)
