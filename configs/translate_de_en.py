"""A small Transformer that translates German sentences to English, for two CPU cores: Tatoeba's short sentence pairs.

    python -m t5x_lite train configs/translate_de_en.py --pairs train.tsv.gz --held-out-pairs dev.tsv.gz
    python -m t5x_lite average runs/translate_de_en --last 5
    python -m t5x_lite evaluate runs/translate_de_en/averaged/last-5 --pairs test.tsv.gz \\
        --metrics bleu chrf --num-beams 4

The files hold a sentence, a tab and its translation a line; 58,601 pairs of 3 to 30 words are what the sizes below are
chosen for.
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, SentencePiece, TsvPairs
from t5x_lite.models import TransformerConfig
from t5x_lite.objectives import SequenceToSequence
from t5x_lite.training import Checkpointing, Evaluation, Logging
from t5x_lite.training.optimizers import Adam
from t5x_lite.training.schedules import InverseSqrt

experiment = Experiment(
    model=TransformerConfig(
        vocab_size=4000,
        embed_dim=192,
        num_heads=4,
        mlp_dim=768,
        num_encoder_layers=3,
        num_decoder_layers=3,
        max_length=128,
        norm_first=True,
        dropout_rate=0.1,
    ),
    objective=SequenceToSequence(input_length=128, target_length=128, label_smoothing=0.1, too_long="skip"),
    data=Data(
        source=TsvPairs(("train.tsv.gz",)),
        tokenizer=SentencePiece(vocab_size=4000, extra_ids=0, character_coverage=1.0),
        held_out=0.02,
    ),
    optimizer=Adam(InverseSqrt(embed_dim=192, warmup_steps=1000), clip_norm=1.0),
    steps=4000,
    batch_size=16,
    evaluation=Evaluation(every=500, rows=128, text_metrics=("bleu",), num_texts=128),
    # The last five are averaged.
    checkpoints=Checkpointing(every=100, keep_last=5, keep_best=0),
    logging=Logging(every=20),
)
