"""BigBird base on questions about long texts (Zaheer et al. 2020, section 4): TriviaQA, windows of 4,096 tokens.

    python -m t5x_lite train configs/big_bird_base_trivia_qa.py --examples train.json --held-out-examples dev.json
    python -m t5x_lite evaluate runs/big_bird_base_trivia_qa --out dev

32 windows a step, a rate of 3e-5. The files are in SQuAD's format, which TriviaQA's own converter writes; any others in
it serve, whose texts are as long as a book's chapter. Of longer texts each window begins 2,048 tokens after the one
before. It needs accelerators and has not been run to its end by us. On a laptop: notebooks/11_long_texts.ipynb.
"""

from dataclasses import replace

from big_bird_base_imdb import experiment as base

from t5x_lite.data import Questions, SquadFiles
from t5x_lite.objectives import QuestionAnswering
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Evaluation

STEPS = 10_000

experiment = replace(
    base,
    model=replace(base.model, heads=("question_answering",)),
    objective=QuestionAnswering(input_length=4096, stride=2048, question_length=64, answer_length=16),
    data=replace(base.data, source=Questions(SquadFiles(("train.json",))), held_out_source=None),
    optimizer=AdamW(
        LinearDecay(peak=3e-5, warmup_steps=STEPS // 10, total_steps=STEPS + 1), weight_decay=0.01, clip_norm=1.0
    ),
    steps=STEPS,
    batch_size=32,
    evaluation=Evaluation(every=500, rows=10_000, metrics=("squad",)),
)
