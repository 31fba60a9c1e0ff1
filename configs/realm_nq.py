"""Open questions with REALM (Guu et al. 2020, sections 3.2 and 4.2): Natural Questions, answers of five tokens or less.

    python -m t5x_lite train configs/realm_nq.py --examples nq_open.train.jsonl --held-out-examples nq_open.dev.jsonl

Five passages of Wikipedia are read with each question; the passages' vectors stay as pretraining left them. 8 questions
a step, a rate of 1e-5, 200,000 steps. Files have a question and its answers a line ({"question": ..., "answer":
[...]}), as Natural Questions Open is published. It begins with what configs/realm_base.py has learned, needs
accelerators, and has not been run to its end by us. To try it on a laptop: configs/realm_tiny_questions.py.
"""

from dataclasses import replace

from realm_base import experiment as base

from t5x_lite.data import JsonlFiles, OpenQuestions
from t5x_lite.models import PRESETS
from t5x_lite.objectives import OpenQuestionAnswering
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Evaluation
from t5x_lite.training.initialization import FromModel

experiment = replace(
    base,
    model=PRESETS["realm-reader"],
    objective=OpenQuestionAnswering(passage_length=288, index_size=13_353_718, input_length=64),
    data=replace(
        base.data,
        source=OpenQuestions(JsonlFiles(("nq_open.train.jsonl",)), answers="answer"),
        corpus=base.data.source,
        held_out=0.02,
    ),
    optimizer=AdamW(LinearDecay(peak=1e-5, warmup_steps=20_000, total_steps=200_000), weight_decay=0.01),
    steps=200_000,
    batch_size=8,
    start=FromModel("runs/realm_base"),
    evaluation=Evaluation(every=5000, rows=1000),
)
