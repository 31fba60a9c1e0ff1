"""Google's recurrent translator (Wu et al. 2016) on WMT14 English-German: 60,000 steps of 128 pairs by Adam.

    python -m t5x_lite train configs/rnn_gnmt.py
    python -m t5x_lite evaluate runs/rnn_gnmt --pairs newstest2014.tsv --metrics bleu --num-beams 4

Eight layers of 1,024 on either side, the lowest of the encoder both ways, residual from the third on, attention by an
added score; Adam at 2e-4, gradients clipped at 5, dropout 0.2 (sections 3 and 8.3). The paper goes on with stochastic
gradient descent until 1.2 million more steps, and then by reinforcement, neither of which is here. Its attention reads
the bottom layer of the decoder, ours the top one.

The rest is configs/transformer_base.py, which says what it needs; it has not been run to its end by us.
"""

from dataclasses import replace

from transformer_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.optim.optimizers import Adam
from t5x_lite.optim.schedules import Constant

experiment = replace(
    base,
    model=replace(PRESETS["rnn-gnmt"], vocab_size=37_000),
    objective=replace(base.objective, input_length=80, target_length=80, label_smoothing=0.0, packed=False),
    optimizer=Adam(Constant(2e-4), clip_norm=5.0, b2=0.999, eps=1e-8),
    steps=60_000,
    batch_size=128,
)
