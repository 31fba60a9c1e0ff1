"""Questions on paragraphs of Wikipedia (Artetxe et al. 2020, SQuAD's format): fine-tuning configs/gutenberg_bert.py.

    python -m t5x_lite train configs/xquad.py --start.folder runs/gutenberg_bert
    python -m t5x_lite evaluate runs/xquad --out answers

Every second article of xquad.en.json.gz is for training, the others are held out: about 600 questions each.
"""

from dataclasses import replace

from gutenberg_bert import experiment as before

from t5x_lite.data import Questions, SquadExamples
from t5x_lite.objectives import QuestionAnswering
from t5x_lite.training import Checkpointing, Evaluation, Logging
from t5x_lite.training.optimizers import AdamW
from t5x_lite.training.schedules import LinearDecay
from t5x_lite.training.start import FromModel

experiment = replace(
    before,
    model=replace(before.model, dropout_rate=0.1, heads=("question_answering",)),
    objective=QuestionAnswering(input_length=192, stride=64, question_length=32),
    data=replace(
        before.data,
        source=Questions(SquadExamples(("xquad.en.json.gz",), parts=2, part=0)),
        held_out_source=Questions(SquadExamples(("xquad.en.json.gz",), parts=2, part=1)),
    ),
    optimizer=AdamW(LinearDecay(peak=5e-4, warmup_steps=60, total_steps=601), clip_norm=1.0),
    steps=600,
    batch_size=32,
    start=FromModel("runs/gutenberg_bert"),
    evaluation=Evaluation(every=200, rows=4096, task_metrics=("squad",)),
    checkpoints=Checkpointing(every=0, keep_last=1, keep_best=0),
    logging=Logging(every=20),
)
