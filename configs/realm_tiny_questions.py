"""Open questions in miniature (Lee et al. 2019): the answer is a span of one of five passages that are looked up.

    python -m t5x_lite train configs/realm_tiny_ict.py --text corpus.jsonl
    python -m t5x_lite train configs/realm_tiny_questions.py --corpus corpus.jsonl --examples questions.jsonl

`corpus.jsonl` holds texts ({"text": ...} a line), `questions.jsonl` questions and their answers ({"question": ...,
"answers": [...]}). On 300 made-up passages and 1,200 questions (benchmarks/open_book.py, six to eleven minutes on two
CPU cores): of 300 other questions all have their answer among the five passages found, where random parameters find
5 %; the reader gives 13 % of the answers exactly.
"""

from dataclasses import replace

from realm_tiny_ict import experiment as base

from t5x_lite.data import JsonlFiles, OpenQuestions, TextFiles
from t5x_lite.objectives import OpenQuestionAnswering
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training.initialization import FromModel

experiment = replace(
    base,
    model=replace(base.model, shared=False, reader=base.model.encoder, answer_dim=64),
    objective=OpenQuestionAnswering(passage_length=64, num_retrieved=5, input_length=32, num_scored=500),
    data=replace(
        base.data,
        source=OpenQuestions(JsonlFiles(("questions.jsonl",))),
        corpus=TextFiles(("corpus.jsonl",)),
        held_out=0.2,
    ),
    optimizer=AdamW(LinearDecay(peak=1e-3, warmup_steps=30, total_steps=301), clip_norm=1.0, b2=0.98),
    start=FromModel("runs/realm_tiny_ict"),
    steps=300,
    batch_size=16,
)
