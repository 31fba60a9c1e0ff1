"""Names in Wikipedia as of configs/wikigold.py, by ELMo (Peters et al. 2018, section 3.3): a mixture of its layers.

    python -m t5x_lite train configs/elmo_tiny.py --text novels/ --workdir runs/gutenberg_elmo
    python -m t5x_lite train configs/wikigold_elmo.py --start.folder runs/gutenberg_elmo
    python -m t5x_lite evaluate runs/wikigold_elmo --out answers

Four minutes of pretraining and four of this, beside other work. Measured, one seed: entity F1 33.5 % (95 % interval
over the test sentences 29.4 to 37.7), 0.0 % from random parameters, and 8.6 % with the pretrained ones frozen.

All of it is trained. As in the paper only the mixture and the head are with `--optimizer.frozen 'words/*' 'forward_*'
'backward_*'`. A folder of the published files (options, HDF5) may be the start too, with the sizes of its `--model`.
"""

from dataclasses import replace

from elmo_tiny import experiment as pretraining
from wikigold import experiment as base

from t5x_lite.data import WordCharacters
from t5x_lite.training.initialization import FromModel

experiment = replace(
    base,
    start=FromModel("runs/gutenberg_elmo"),
    model=replace(pretraining.model, num_words=0, heads=("tagging",), num_classes=5),
    objective=replace(base.objective, input_length=192),
    data=replace(base.data, tokenizer=WordCharacters()),
)
