"""GPT-3 175B (Brown et al. 2020, tables 2.1 and 2.2, appendix B): 300 billion tokens, 1,536 rows of 2,048 a batch.

    python -m t5x_lite train configs/gpt3_175b.py

Adam with 0.9 and 0.95, clipping at 1.0, weight decay 0.1; linear growth over 375 million tokens to 0.6e-4, half a
cosine down to a tenth over 260 billion, a tenth from then on. The paper's batch of 3.2 million tokens is 3.1 here, and
is had from the first step on: its linear growth from 32,000 tokens over the first 4 to 12 billion is not built. Its
layers take turns between dense and banded sparse attention; all are dense here.

The paper's mixture is not published; C4 stands for it (TensorFlow Datasets `c4/en`, 806 GB). It needs a pod and has not
been run by us. `python -m t5x_lite inspect configs/gpt3_175b.py --text any_text.txt` shows it on a laptop, which also
trains its small sister: configs/gpt2_small.py.
"""

from dataclasses import replace

from gpt2_small import experiment as base

from t5x_lite.data import Tfds
from t5x_lite.models import PRESETS
from t5x_lite.objectives import CausalLanguageModel
from t5x_lite.parallel import MeshShape
from t5x_lite.training.schedules import CosineDecay

tokens = 1536 * 2048

experiment = replace(
    base,
    # 47 rows more than the tokenizer has ids: 8 does not divide 50,257.
    model=replace(PRESETS["gpt3-175b"], vocab_size=50_304),
    objective=CausalLanguageModel(input_length=2048),
    data=replace(base.data, source=Tfds("c4/en")),
    optimizer=replace(
        base.optimizer,
        schedule=CosineDecay(
            peak=0.6e-4,
            warmup_steps=round(375e6 / tokens),
            total_steps=round(260e9 / tokens),
            floor=0.1,
        ),
    ),
    steps=round(300e9 / tokens),
    batch_size=1536,
    remat="full",
    mesh=MeshShape(data=1, fsdp=-1, tensor=8),
)
