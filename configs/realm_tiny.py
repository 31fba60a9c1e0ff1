"""REALM in miniature on the documentation that every Python carries: a masked name, and the passages that tell it.

python -m t5x_lite train configs/realm_tiny_ict.py
python -m t5x_lite train configs/realm_tiny.py

"""

from dataclasses import replace

from realm_tiny_ict import experiment as base

from t5x_lite.objectives import RetrievalMaskedLanguageModel
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation
from t5x_lite.training.initialization import FromModel

experiment = replace(
    base,
    model=replace(base.model, shared=False, reader=replace(base.model.encoder, heads=("masked_lm",))),
    objective=RetrievalMaskedLanguageModel(passage_length=64, num_retrieved=3, refresh_every=50, input_length=32),
    # The encoders learn at a tenth of the rate: what they are told is noise until the reader has learned to read.
    optimizer=AdamW(
        LinearDecay(peak=1e-3, warmup_steps=50, total_steps=401),
        clip_norm=1.0,
        b2=0.98,
        rates=(("question_encoder/*", 0.1), ("passage_encoder/*", 0.1)),
    ),
    start=FromModel("runs/realm_tiny_ict"),
    steps=400,
    batch_size=16,
    evaluation=Evaluation(every=100, rows=256),
    checkpoints=Checkpointing(every=100),
)
