"""BERT base on SQuAD 2.0 (Devlin et al. 2019, section 4.3): two epochs of batches of 48, windows of 384 tokens.

    python -m t5x_lite train configs/bert_base_squad2.py --start.folder google-bert/bert-base-uncased
    python -m t5x_lite evaluate runs/bert_base_squad2 --out dev

`squad2_best_exact_thresh` among the scores is what an answer has to be better by than none. Needs the task on disk or
the means to prepare it (TensorFlow Datasets `squad/v2.0`), and accelerators: it has not been run to its end by us. The
JSON files themselves serve too: `data=squad_files("squad2", ("train-v2.0.json",), ("dev-v2.0.json",)).head_data(...)`.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import WordPiece
from t5x_lite.models import PRESETS
from t5x_lite.objectives import QuestionAnswering
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.tasks.reading import SQUAD_2_0
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision
from t5x_lite.training.initialization import FromModel

# About 132,000 windows of 130,319 questions.
STEPS = 2 * 132_000 // 48

experiment = Experiment(
    model=replace(PRESETS["bert-base-uncased"], heads=("question_answering",)),
    objective=QuestionAnswering(input_length=384, stride=128, question_length=64),
    # The tokenizer is that of the model that it starts from.
    data=SQUAD_2_0.head_data(tokenizer=WordPiece(vocab_size=30_522)),
    optimizer=AdamW(
        LinearDecay(peak=5e-5, warmup_steps=STEPS // 10, total_steps=STEPS + 1), weight_decay=0.01, clip_norm=1.0
    ),
    steps=STEPS,
    batch_size=48,
    start=FromModel("google-bert/bert-base-uncased"),
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=1000, rows=13_000, metrics=("squad2",)),
    checkpoints=Checkpointing(every=1000),
    logging=Logging(every=100),
)
