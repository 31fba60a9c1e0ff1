"""The inverse cloze task in miniature on the documentation that every Python carries: no download, any machine.

    python -m t5x_lite train configs/realm_tiny_ict.py

About three minutes on two CPU cores. The documentation has few passages of several sentences: held-out loss 3.26 nats a
passage, where a guess among those of a batch has 3.34, while those of training come to 2.8. On texts whose sentences
name what they are about it learns in a hundred steps: notebooks/10_open_book.ipynb.
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, PythonDocs, WordPiece
from t5x_lite.models import BertConfig, RealmConfig
from t5x_lite.objectives import InverseCloze
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging

experiment = Experiment(
    model=RealmConfig(
        encoder=BertConfig(
            vocab_size=2048,
            embed_dim=128,
            num_heads=4,
            mlp_dim=512,
            num_layers=2,
            max_length=128,
            dropout_rate=0.0,
            attention_dropout_rate=0.0,
        ),
        projection_dim=64,
        shared=True,
    ),
    objective=InverseCloze(input_length=32, passage_length=64),
    data=Data(source=PythonDocs(), tokenizer=WordPiece(vocab_size=2048), held_out=0.05),
    optimizer=AdamW(LinearDecay(peak=1e-3, warmup_steps=50, total_steps=401), clip_norm=1.0, b2=0.98),
    steps=400,
    batch_size=64,
    evaluation=Evaluation(every=100, rows=256),
    checkpoints=Checkpointing(every=100),
    logging=Logging(every=20),
)
