"""BERT large (Devlin et al. 2019), first nine tenths on rows of 128.

    python -m t5x_lite train configs/bert_large.py
    python -m t5x_lite plan configs/bert_large.py --topology v5e:4x4
    python -m t5x_lite train configs/bert_large_512.py     # the last tenth, on rows of 512

The rest is configs/bert_base.py, which says what it needs. With `--remat none` the step takes a quarter of the time to
compile, and 84.1 ms as the compiler expects it.

Recommended: v5e:4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    bert_large on v5e:4x4: 16 chips, 4 hosts; mesh data 1, fsdp 16, sequence 1, tensor 1; remat unroll
    336,226,108 parameters; a step of 256 rows, 64,512 tokens

     memory of a chip           GiB
     parameters                0.08
     optimizer                 0.16
     average, teacher, batch   0.00
     activations, temporaries  2.17
     code                      0.29
     together, of 16: fits     2.69

     collective      among  count  MB a chip    ms  largest input
     all-reduce          8      6      930.8  9.31  bf16[30522,1024]
     all-gather          8    135      876.4  8.76  bf16[30522,128]
     reduce-scatter      8     24      176.2  1.76  bf16[1024,4096]
     all-reduce          2      3       66.5  1.33  bf16[30522,128]
     all-gather          2    149       41.9  0.84  bf16[30522,64]
     reduce-scatter      2     24       12.6  0.25  bf16[128,4096]
     all-reduce         16      5        4.4  0.04  bf16[1,128,1024]
     all-gather         16     25        1.2  0.01  bf16[512,64]

     a step at least             ms
     compute: matrix products  19.7
     hbm: memory               15.3
     ici: links between chips  22.3

     a step as the compiler expects it    ms
     operations                         40.6
     kernels of attention                5.6
     links that nothing hides           14.0

    model FLOPs 6.155e+13 a step, compiled 6.217e+13 (1.01 times)
    at most 87.5% MFU and 2,891,721 tokens/s, bound by ici
    expected 32.4% MFU and 1,071,703 tokens/s, 60.2 ms a step
"""

from dataclasses import replace

from bert_base import experiment as base

from t5x_lite.models import PRESETS
from t5x_lite.parallel import MeshShape

experiment = replace(
    base,
    model=replace(PRESETS["bert-large-uncased"], heads=base.model.heads),
    remat="unroll",
    mesh=MeshShape(data=1, fsdp=-1),
)
