"""Questions on paragraphs of Wikipedia (Artetxe et al. 2020, SQuAD's format): fine-tuning configs/gutenberg_bert.py.

    python -m t5x_lite train configs/xquad.py --start.folder runs/gutenberg_bert
    python -m t5x_lite evaluate runs/xquad --out answers

Every second article of xquad.en.json.gz is for training, the others are held out: about 600 questions each.

Measured, three seeds: F1 7.2 % (5.9 to 8.1) from configs/gutenberg_bert.py, 4.9 % (4.6 to 5.2) from random
parameters; the difference is +2.3 points, its 95 % interval +0.5 to +4.3 (benchmarks/fine_tuning.py).
"""

from dataclasses import replace

from gutenberg_bert import fine_tuning

from t5x_lite.data import Questions, SquadFiles
from t5x_lite.objectives import QuestionAnswering
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Evaluation

experiment = replace(
    fine_tuning,
    model=replace(fine_tuning.model, heads=("question_answering",)),
    objective=QuestionAnswering(input_length=128, stride=48, question_length=32),
    data=replace(
        fine_tuning.data,
        source=Questions(SquadFiles(("xquad.en.json.gz",), parts=2, part=0)),
        held_out_source=Questions(SquadFiles(("xquad.en.json.gz",), parts=2, part=1)),
    ),
    optimizer=AdamW(LinearDecay(peak=5e-4, warmup_steps=30, total_steps=301), clip_norm=1.0),
    steps=300,
    evaluation=Evaluation(every=150, rows=4096, metrics=("squad",)),
)
