"""GPT-2 small (Radford et al. 2019): 512 rows of 1,024 tokens a batch, byte-level BPE of 50,257.

    python -m t5x_lite train configs/gpt2_small.py

The paper gives batch and length, and neither its optimizer nor its number of steps. Here the optimizer is that of GPT-3
small, which has the same size and batch (Brown et al. 2020, table 2.1 and appendix B); 100,000 steps are 52 billion
tokens.

WebText was never published; OpenWebText stands for it (24 GB of Parquet on the Hugging Face hub). It needs accelerators
and has not been run to its end by us. To try it on a laptop: add `--text any_text.txt --steps 3 --batch-size 2
--precision.compute float32`. Cut the batch up with `--accumulation` where memory is short.
"""

from t5x_lite import Experiment
from t5x_lite.data import ByteLevelBPE, Data, TextFiles
from t5x_lite.models import PRESETS
from t5x_lite.objectives import CausalLanguageModel
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

experiment = Experiment(
    model=PRESETS["gpt2"],
    objective=CausalLanguageModel(input_length=1024),
    # Trained on the corpus; the published one: ByteLevelBPE(file="vocab.json").
    data=Data(
        source=TextFiles(("hf://datasets/Skylion007/openwebtext/plain_text/train-*.parquet",)),
        tokenizer=ByteLevelBPE(vocab_size=50_257),
        held_out=0.001,
    ),
    optimizer=AdamW(
        CosineDecay(peak=6e-4, warmup_steps=715, total_steps=100_000, floor=0.1),
        clip_norm=1.0,
        b1=0.9,
        b2=0.95,
        eps=1e-8,
        weight_decay=0.1,
    ),
    steps=100_000,
    batch_size=512,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=5000, rows=1024),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
)
