"""T5 base on all of GLUE at once, as text to text (Raffel et al. 2020, section 3.5): every task in proportion to its
examples, 2^18 steps of 128 pairs of up to 512 tokens, a learning rate of 0.001 throughout.

    python -m t5x_lite train configs/t5_base_glue.py --start.folder runs/t5_base        # or google-t5/t5-base
    python -m t5x_lite evaluate runs/t5_base_glue --out dev

Needs the tasks on disk or the means to prepare them (TensorFlow Datasets `glue/cola` and the others), and accelerators:
it has not been run to its end by us. For SuperGLUE put its name in place of GLUE's. WNLI is left out, as by the paper.
"""

from t5x_lite import Experiment
from t5x_lite.data import Data, Proportional, SentencePiece
from t5x_lite.models import PRESETS
from t5x_lite.objectives import SequenceToSequence
from t5x_lite.optim.optimizers import Adafactor
from t5x_lite.optim.schedules import Constant
from t5x_lite.tasks.glue import GLUE, WNLI
from t5x_lite.tasks.task import metrics_of_parts, mixture
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision
from t5x_lite.training.initialization import FromModel

TASKS = tuple(task for task in GLUE if task is not WNLI)

experiment = Experiment(
    model=PRESETS["t5-base"],
    objective=SequenceToSequence(input_length=512, target_length=64),
    # The tokenizer is that of the model that it starts from.
    data=Data(mixture(TASKS, Proportional()), SentencePiece(vocab_size=32_000)),
    optimizer=Adafactor(schedule=Constant(1e-3)),
    steps=2**18,
    batch_size=128,
    start=FromModel("runs/t5_base"),
    precision=Precision("bfloat16"),
    # The development sets of MNLI and QNLI are decoded as far as this, the others to their end.
    evaluation=Evaluation(every=5000, rows=2048, num_texts=2048, part_metrics=metrics_of_parts(TASKS), max_length=16),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
)
