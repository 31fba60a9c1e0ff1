"""REALM (Guu et al. 2020, sections 3 and 4): a masked name or date, and the passages of Wikipedia that tell it.

    python -m t5x_lite train configs/realm_base.py
    python -m t5x_lite plan configs/realm_base.py --topology v5p:4x4x4

512 rows a step, each read with seven passages and an empty one; 13,353,718 passages of 288 tokens (a larger dump needs
a larger `index_size`), all of which are encoded once more in 500 steps; a rate of 3e-5, 200,000 steps. It begins with
what configs/realm_ict.py has learned, its reader with BERT. The text that is masked and the one that is searched are
English Wikipedia; the paper masks CC-News too. It needs accelerators and has not been run to its end by us. To try it
on a laptop: configs/realm_tiny.py.

Recommended: v5p:4x4x4. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    realm_base on v5p:4x4x4: 64 chips, 16 hosts; mesh data 64, fsdp 1, sequence 1, tensor 1; remat dots
    329,266,746 parameters; a step of 512 rows, 147,456 tokens

     memory of a chip            GiB
     parameters                 1.23
     optimizer                  2.45
     average, teacher, batch    0.72
     activations, temporaries  12.02
     code                       0.11
     together, of 95: fits     16.54

     collective  among  count  MB a chip    ms  largest input
     all-reduce     64     89    1,515.8  2.53  f32[30522,768]
     all-gather     64     15        3.4  0.01  f32[8,128]
     all-to-all     64      1        0.0  0.00  f32[64,8,8]

     a step at least              ms
     compute: matrix products  111.1
     hbm: memory                84.3
     ici: links between chips    2.5

     a step as the compiler expects it     ms
     operations                         307.6
     kernels of attention                69.8
     links that nothing hides             2.5

    model FLOPs 3.015e+15 a step, compiled 3.263e+15 (1.08 times)
    at most 92.4% MFU and 1,327,332 tokens/s, bound by compute
    expected 27.0% MFU and 388,171 tokens/s, 379.9 ms a step

Of a chip's memory the index takes 103.5 MiB for the vectors that are searched, as much for those of the round that is
under way, 116.5 for its passages' tokens and 418.0 for the encoder of the round. A search for 512 questions takes 1.3
ms in bfloat16 without the sorting, of whose time the compiler says nothing (benchmarks/README.md). A step encodes
27,136 passages.
"""

from dataclasses import replace

from realm_ict import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.objectives import RetrievalMaskedLanguageModel
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.training.initialization import FromModel

experiment = replace(
    base,
    model=PRESETS["realm"],
    objective=RetrievalMaskedLanguageModel(
        passage_length=288, num_retrieved=7, refresh_every=500, index_size=13_353_718, input_length=128
    ),
    optimizer=AdamW(LinearDecay(peak=3e-5, warmup_steps=10_000, total_steps=200_000), weight_decay=0.01),
    steps=200_000,
    batch_size=512,
    start=FromModel("runs/realm_ict"),
    remat="dots",
)
