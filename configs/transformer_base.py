"""The Transformer of Vaswani et al. 2017, base, on WMT14 English-German: 100,000 steps of 25,000 + 25,000 tokens.

    python -m t5x_lite train configs/transformer_base.py
    python -m t5x_lite average runs/transformer_base --last 5
    python -m t5x_lite evaluate runs/transformer_base/averaged/last-5 --pairs newstest2014.tsv \\
        --metrics bleu chrf --num-beams 4 --alpha 0.6

Sections 5 and 6.1 of the paper: a batch is rows of packed pairs, 25,000 tokens on either side; the last 5 checkpoints,
ten minutes apart, which were 1,500 steps on its machine, are averaged; beam 4, length penalty 0.6, answers of at most
fifty tokens more than the input. It reports 27.3 BLEU of tokens on newstest2014, which sacrebleu's figure is not.

The 4.5 million pairs are read from the Hugging Face hub. It needs accelerators: it has not been run to its end by us.
Pairs of one's own: `--pairs mine.tsv --held-out-pairs dev.tsv`. To try it on a laptop: add `--steps 3 --batch-size 4
--precision.compute float32`.
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, ParquetFiles, SentencePiece, TextTemplate, TextToText
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SequenceToSequence
from t5x_lite.optim.optimizers import Adam
from t5x_lite.optim.schedules import InverseSqrt
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

wmt14 = "hf://datasets/wmt/wmt14/de-en"
template = TextTemplate("{translation/en}", "{translation/de}")

experiment = Experiment(
    model=PRESETS["transformer-base-en-de"],
    # The few pairs that are longer than a row are left out, and counted.
    objective=SequenceToSequence(input_length=256, target_length=256, label_smoothing=0.1, too_long="skip"),
    data=Data(
        source=TextToText(ParquetFiles((f"{wmt14}/train-*.parquet",)), template, empty="skip"),
        # One vocabulary for both languages, which share the embedding.
        tokenizer=SentencePiece(vocab_size=37_000, extra_ids=0, algorithm="bpe"),
        held_out_source=TextToText(ParquetFiles((f"{wmt14}/validation-*.parquet",)), template),
    ),
    optimizer=Adam(InverseSqrt(embed_dim=512, warmup_steps=4000), b1=0.9, b2=0.98, eps=1e-9),
    steps=100_000,
    # About 6 % of 104 x 256 ids is padding.
    batch_size=104,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5000, rows=1024, metrics=("bleu",), num_texts=512, num_beams=4, alpha=0.6),
    checkpoints=Checkpointing(every=1500, keep_last=5, keep_best=0),
    logging=Logging(every=100),
)
