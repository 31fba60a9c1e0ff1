"""MASS in miniature, fine-tuned on pairs (Song et al. 2019, section 4.2): few pairs, after much text of both languages.

    python -m t5x_lite train configs/mass_tiny.py --text sides.txt
    python -m t5x_lite train configs/mass_tiny_finetune.py --pairs pairs.tsv

`sides.txt` holds sentences of both languages, a line each, which need not be translations. Two minutes on two CPU
cores (the first run: two for 600 steps, nine for 4,000). With 4,000 of Tatoeba's German-English pairs, after 4,000
steps on the sentences of the others, it has 3.50 nats a token and 4.5 BLEU of 1,000 test pairs, greedily; from scratch,
with the same tokenizer and steps, 3.52 and 9.8. With a sixth of the learning rate these are 3.05 and 1.6: so little
text makes the decoder a better model of its language, not one that reads its source. The paper has 190 million
sentences.
"""

from dataclasses import replace

from mass_tiny import experiment as pretraining
from transformer_tiny import experiment as base

from t5x_lite.training.initialization import FromModel

experiment = replace(
    base,
    start=FromModel("runs/mass_tiny"),
    model=replace(pretraining.model, dropout_rate=0.1),
    objective=replace(base.objective, input_length=96, target_length=96),
)
