"""BERT large (Devlin et al. 2019), first nine tenths on rows of 128.

    python -m t5x_lite train configs/bert_large.py
    python -m t5x_lite plan configs/bert_large.py --topology v5e:4x4
    python -m t5x_lite train configs/bert_large_512.py     # the last tenth, on rows of 512

The rest is configs/bert_base.py, which says what it needs.

Recommended: v5e:4x4, with the mesh of this config. Its plan, made on two CPU cores with libtpu 0.0.42.1:

    bert_large on v5e:4x4: 16 chips, 4 hosts; mesh data 16, fsdp 1, sequence 1, tensor 1; remat dots
    336,226,108 parameters; a step of 256 rows, 64,512 tokens

     memory of a chip           GiB
     parameters                1.25
     optimizer                 2.51
     average, teacher, batch   0.00
     activations, temporaries  2.69
     code                      0.03
     together, of 16: fits     6.48

     collective  among  count  MB a chip     ms  largest input
     all-reduce     16     51    1,494.3  14.94  f32[30522,1024]

     a step at least             ms
     compute: matrix products  19.7
     hbm: memory               66.7
     ici: links between chips  14.9

    model FLOPs 6.155e+13 a step, compiled 6.197e+13 (1.01 times)
    at most 29.3% MFU and 967,575 tokens/s, bound by hbm
    compiled in 81 s
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
