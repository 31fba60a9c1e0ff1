"""The recurrent encoder-decoder of Bahdanau et al. 2015 on two CPU cores: Tatoeba's short German-English pairs.

    python -m t5x_lite train configs/translate_de_en_rnn.py --pairs train.tsv.gz --held-out-pairs dev.tsv.gz
    python -m t5x_lite evaluate runs/translate_de_en_rnn --pairs test.tsv.gz --metrics bleu chrf --num-beams 4
    python -m t5x_lite attention runs/translate_de_en_rnn "Wo ist der Bahnhof?" --layer 0 --head 0 --out alignment.png

24 minutes on two CPU cores beside other work; about ten alone, reckoned from a step of 0.28 s. On 1,000 test pairs of
Tatoeba, sacrebleu's nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 (chrF in brackets): 33.2 (50.2)
greedily, 35.3 (51.1) with a beam of 4.

Data, tokenizer and size are those of configs/translate_de_en.py; benchmarks/translation.py compares it with others.
"""

from dataclasses import replace

from translate_de_en import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.optim.optimizers import Adam
from t5x_lite.optim.schedules import LinearDecay

experiment = replace(
    base,
    model=replace(
        PRESETS["rnn-bahdanau"],
        vocab_size=4000,
        embed_dim=192,
        units=216,
        maxout_units=192,
        dropout_rate=0.1,
        initial_scale=0.2,
    ),
    objective=replace(base.objective, input_length=32, target_length=32, packed=False),
    optimizer=Adam(LinearDecay(peak=6e-3, warmup_steps=300, total_steps=2001), clip_norm=1.0),
    steps=2000,
    batch_size=64,
)
