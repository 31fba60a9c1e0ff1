"""BERT base on MNLI (Devlin et al. 2019, section 4.1): three epochs of batches of 32, the learning rate of 2e-5 that
they name first of four; choose it on the development set as they did.

    python -m t5x_lite train configs/bert_base_mnli.py --start.folder google-bert/bert-base-uncased
    python -m t5x_lite evaluate runs/bert_base_mnli --out dev
    python -m t5x_lite evaluate runs/bert_base_mnli --split test_matched --unlabeled --out test --submission glue

Any task of GLUE is this with another name in place of MNLI, and as many classes as it has (one for STS-B, a number).
Needs the task on disk or the means to prepare it (TensorFlow Datasets `glue/mnli`), and accelerators: it has not been
run to its end by us.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import WordPiece
from t5x_lite.models import PRESETS
from t5x_lite.objectives import Classification
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.tasks.glue import MNLI
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision
from t5x_lite.training.initialization import FromModel

STEPS = 3 * 392_702 // 32

experiment = Experiment(
    model=replace(PRESETS["bert-base-uncased"], heads=("classification",), num_classes=3),
    objective=Classification(input_length=128),
    # The tokenizer is that of the model that it starts from.
    data=MNLI.head_data(tokenizer=WordPiece(vocab_size=30_522)),
    optimizer=AdamW(
        LinearDecay(peak=2e-5, warmup_steps=STEPS // 10, total_steps=STEPS + 1), weight_decay=0.01, clip_norm=1.0
    ),
    steps=STEPS,
    batch_size=32,
    start=FromModel("google-bert/bert-base-uncased"),
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=2000, rows=10_000),
    checkpoints=Checkpointing(every=2000),
    logging=Logging(every=100),
)
