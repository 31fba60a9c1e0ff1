"""BERT in miniature (masked tokens and next sentences) on the documentation that every Python carries: no download.

python -m t5x_lite train configs/bert_tiny.py
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, PythonDocs, WordPiece
from t5x_lite.models import BertConfig
from t5x_lite.objectives import NextSentencePrediction
from t5x_lite.training import Checkpointing, Evaluation, Logging
from t5x_lite.training.optimizers import AdamW
from t5x_lite.training.schedules import LinearDecay

experiment = Experiment(
    model=BertConfig(
        vocab_size=2048,
        embed_dim=128,
        num_heads=4,
        mlp_dim=512,
        num_layers=2,
        max_length=128,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        heads=("masked_lm", "sentence_pair"),
    ),
    objective=NextSentencePrediction(input_length=64),
    data=Data(source=PythonDocs(), tokenizer=WordPiece(vocab_size=2048), held_out=0.05),
    optimizer=AdamW(LinearDecay(peak=1e-3, warmup_steps=100, total_steps=2001), clip_norm=1.0),
    steps=2000,
    batch_size=32,
    evaluation=Evaluation(every=500, rows=256),
    checkpoints=Checkpointing(every=500),
    logging=Logging(every=20),
)
