"""REALM's warm start: the inverse cloze task (Lee et al. 2019, section 5.1; Guu et al. 2020, section 3.4).

    python -m t5x_lite train configs/realm_ict.py

One BERT base for sentences and passages, 4,096 rows a step, a rate of 1e-4, 100,000 steps. The reader that comes next
is there already, a BERT that is not trained here. The text is English Wikipedia of TensorFlow Datasets. It needs
accelerators and has not been run to its end by us. To try it on a laptop: configs/realm_tiny_ict.py.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import Data, Tfds, WordPiece
from t5x_lite.models import PRESETS
from t5x_lite.objectives import InverseCloze
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision
from t5x_lite.training.initialization import FromModel

experiment = Experiment(
    model=replace(PRESETS["realm"], shared=True),
    objective=InverseCloze(input_length=64, passage_length=288),
    data=Data(
        source=Tfds("wikipedia/20230601.en", split="train"), tokenizer=WordPiece(vocab_size=30_522), held_out=0.001
    ),
    optimizer=AdamW(
        LinearDecay(peak=1e-4, warmup_steps=10_000, total_steps=100_000), weight_decay=0.01, frozen=("reader/*",)
    ),
    steps=100_000,
    batch_size=4096,
    start=FromModel("google-bert/bert-base-uncased"),
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5000, rows=4096),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
)
