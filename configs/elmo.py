"""ELMo, original (Peters et al. 2018; Jozefowicz et al. 2016): ten epochs of the one billion word benchmark.

    python -m t5x_lite train configs/elmo.py

Rows of 20 words that go on from each other, 128 on each of three devices, a softmax of 8,192 draws among 793,471 words,
dropout 0.1, Adagrad at 0.2. The paper reports a perplexity of 39.7 over both directions. The benchmark is
1-billion-word-language-modeling-benchmark-r13output.tar.gz of statmt.org; any text with words between blanks does. It
needs accelerators and has not been run to its end by us. To try it on a laptop: add `--text any_text.txt --steps 3
--batch-size 2 --precision.compute float32 --model.num-words 9000`.
"""

from dataclasses import replace

from t5x_lite import Experiment
from t5x_lite.data import Data, TextFiles, Words
from t5x_lite.models import PRESETS
from t5x_lite.objectives import BidirectionalLanguageModel
from t5x_lite.optim.optimizers import Adagrad
from t5x_lite.optim.schedules import Constant
from t5x_lite.training import Checkpointing, Evaluation, Logging, Precision

benchmark = "1-billion-word-language-modeling-benchmark-r13output"

experiment = Experiment(
    model=replace(PRESETS["elmo-original"], num_words=793_471, dropout_rate=0.1),
    objective=BidirectionalLanguageModel(input_length=20, num_samples=8192),
    data=Data(
        source=TextFiles((f"{benchmark}/training-monolingual.tokenized.shuffled/news.en-*",), document="line"),
        tokenizer=Words(793_471),
        held_out_source=TextFiles((f"{benchmark}/heldout-monolingual.tokenized.shuffled/news.en*",), document="line"),
        sentences="line",
    ),
    optimizer=Adagrad(Constant(0.2), clip_norm=10.0),
    steps=1_000_000,
    batch_size=384,
    precision=Precision("bfloat16"),
    evaluation=Evaluation(every=10_000, rows=16_384),
    checkpoints=Checkpointing(every=10_000),
    logging=Logging(every=200),
)
