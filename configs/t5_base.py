"""The baseline of the T5 paper (Raffel et al. 2020, section 3.1): T5 base, C4, 2^19 steps of 128 x 512 tokens.

    python -m t5x_lite prepare configs/t5_base.py --out gs://my-bucket/c4
    python -m t5x_lite train configs/t5_base.py --data.prepared gs://my-bucket/c4

Its noise is the random spans that the paper settles on (section 3.3.4). The other objectives of its tables 3 and 5 are
beside it: t5_base_replace_spans.py (the baseline's own), _prefix_lm, _bert_style, _mass_style, _deshuffling and
_drop_tokens.

C4 is read from the Hugging Face hub, 327 GB of compressed JSON, and its rows take about as much in the bucket; let a
machine with many cores and no accelerator prepare it. The run needs accelerators: it has not been run to its end by us.
To look at it: `python -m t5x_lite inspect configs/t5_base.py --text any_text.txt`. To try it on a laptop: add
`--text any_text.txt --steps 3 --batch-size 4 --precision.compute float32`. On accelerators `--remat unroll` takes
longer to compile and less time a step: on v5e:4x4 the compiler expects 70 ms instead of 124.
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, SentencePiece, TextFiles
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SpanCorruption
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.optim.schedules import T5InverseSqrt
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

c4 = "hf://datasets/allenai/c4/en"

experiment = Experiment(
    model=PRESETS["t5-base"],
    objective=SpanCorruption(input_length=512, noise_density=0.15, mean_span_length=3.0),
    # Trained on the corpus as the paper's was; the published one: SentencePiece(model_file="spiece.model").
    data=Data(
        source=TextFiles((f"{c4}/c4-train.*.json.gz",)),
        tokenizer=SentencePiece(vocab_size=32_000),
        held_out_source=TextFiles((f"{c4}/c4-validation.*.json.gz",)),
    ),
    optimizer=Adafactor(schedule=T5InverseSqrt(warmup_steps=10_000)),
    steps=2**19,
    batch_size=128,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5000, rows=1024),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
)
