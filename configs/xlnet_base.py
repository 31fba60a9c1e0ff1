"""XLNet base (Yang et al. 2019, section 3): a million steps of 256 rows of 512, partial prediction with K = 6.

    python -m t5x_lite train configs/xlnet_base.py

The paper gives the sizes of BERT base and its data, BooksCorpus and Wikipedia; batch and steps here are BERT's, the
rest is that of XLNet large (table 7). OpenWebText stands for the data (24 GB of Parquet on the Hugging Face hub). It
needs accelerators and has not been run to its end by us. To try it on a laptop: add `--text any_text.txt --steps 3
--batch-size 2 --precision.compute float32`. Cut the batch up with `--accumulation` where memory is short.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import Data, SentencePiece, TextFiles
from t5x_lite.models import PRESETS
from t5x_lite.objectives import PermutationLanguageModel
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

experiment = Experiment(
    model=replace(PRESETS["xlnet-base-cased"], heads=("permutation_lm",)),
    objective=PermutationLanguageModel(input_length=512, reused_length=256, memory_length=384),
    # Trained on the corpus; the published one: SentencePiece(layout="xlnet", model_file="spiece.model").
    data=Data(
        source=TextFiles(("hf://datasets/Skylion007/openwebtext/plain_text/train-*.parquet",)),
        tokenizer=SentencePiece(vocab_size=32_000, layout="xlnet"),
        held_out=0.001,
    ),
    optimizer=AdamW(LinearDecay(peak=1e-4, warmup_steps=20_000, total_steps=1_000_000), eps=1e-6, weight_decay=0.01),
    steps=1_000_000,
    batch_size=256,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=10_000, rows=4096),
    checkpoints=Checkpointing(every=5000),
    logging=Logging(every=100),
)
