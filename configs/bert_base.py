"""BERT base (Devlin et al. 2019, appendix A.2), first nine tenths: rows of 128, 256 of them a batch, 900,000 steps.

    python -m t5x_lite train configs/bert_base.py
    python -m t5x_lite train configs/bert_base_512.py      # the last tenth, on rows of 512

Wikipedia is read from the Hugging Face hub, 12 GB of Parquet (the paper adds BooksCorpus, which is no longer
distributed). It needs accelerators: it has not been run to its end by us. To look at it:
`python -m t5x_lite inspect configs/bert_base.py --text any_text.txt`. To try it on a laptop: add
`--text any_text.txt --steps 3 --batch-size 2 --precision.compute float32`.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import Data, TextFiles, WordPiece
from t5x_lite.models import PRESETS
from t5x_lite.objectives import NextSentencePrediction
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

experiment = Experiment(
    model=replace(PRESETS["bert-base-uncased"], heads=("masked_lm", "sentence_pair")),
    # Ten masked copies of the data, made once, as the authors' code has them; 0 masks afresh every time.
    objective=NextSentencePrediction(input_length=128, static_masks=10),
    # Trained on the corpus; the published one: WordPiece(file="vocab.txt").
    data=Data(
        source=TextFiles(("hf://datasets/wikimedia/wikipedia/20231101.en/train-*.parquet",)),
        tokenizer=WordPiece(vocab_size=30_522),
        held_out=0.001,
    ),
    optimizer=AdamW(LinearDecay(peak=1e-4, warmup_steps=10_000, total_steps=1_000_000), clip_norm=1.0),
    steps=900_000,
    batch_size=256,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=10_000, rows=4096),
    checkpoints=Checkpointing(every=10_000),
    logging=Logging(every=100),
)
