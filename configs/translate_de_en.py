"""A small Transformer that translates German sentences to English, for two CPU cores: Tatoeba's short sentence pairs.

    python -m t5x_lite train configs/translate_de_en.py --pairs train.tsv.gz --held-out-pairs dev.tsv.gz
    python -m t5x_lite average runs/translate_de_en --last 5
    python -m t5x_lite evaluate runs/translate_de_en/averaged/last-5 --pairs test.tsv.gz \\
        --metrics bleu chrf --num-beams 4

The files hold a sentence, a tab and its translation a line; 58,601 pairs of 3 to 30 words are what the sizes below are
chosen for. On Tatoeba's German-English pairs (CC BY 2.0) and two cores of a shared x86-64 machine, tokenizer and
evaluations included: 41 minutes by the clock with other work beside it; about 34 alone, reckoned from its faster steps.

On 1,000 test pairs, sacrebleu's nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 (chrF in brackets):

                          greedy         beam 4
    last checkpoint       39.6 (55.9)    40.4 (56.6)
    mean of last five     40.1 (57.0)    41.8 (58.1)

The curve, on dev (BLEU of 128 sentences, greedy):

    step          500  1000  1500  2000  2500  3000  3500  4000  4500  5000
    loss (nats)  2.77  2.02  1.72  1.55  1.48  1.40  1.38  1.35  1.35  1.33
    BLEU         12.9  23.4  30.9  33.0  35.3  35.5  39.1  43.3  39.5  42.1
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, SentencePiece, TableFiles, TextTemplate, TextToText
from t5x_lite.models import TransformerConfig
from t5x_lite.objectives import SequenceToSequence
from t5x_lite.optim.optimizers import Adam
from t5x_lite.optim.schedules import InverseSqrt
from t5x_lite.training import Checkpointing, Evaluation, Logging

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
        source=TextToText(TableFiles(("train.tsv.gz",), columns=()), TextTemplate("{0}", "{1}")),
        tokenizer=SentencePiece(vocab_size=4000, extra_ids=0, character_coverage=1.0),
        held_out=0.02,
    ),
    optimizer=Adam(InverseSqrt(embed_dim=192, warmup_steps=1000), clip_norm=1.0),
    steps=5000,
    batch_size=16,
    evaluation=Evaluation(every=500, rows=128, metrics=("bleu",), num_texts=128),
    # The last five are averaged.
    checkpoints=Checkpointing(every=200, keep_last=5, keep_best=0),
    logging=Logging(every=20),
)
