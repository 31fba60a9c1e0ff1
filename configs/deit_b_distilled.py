"""DeiT-B with a distillation token (Touvron et al. 2021, section 3): the recipe of configs/deit_b.py and a teacher.

    python -m t5x_lite train configs/deit_b_distilled.py --objective.teacher FOLDER

configs/deit_s.py says what it needs. FOLDER is a run, such as that of configs/resnet50.py, or a Hugging Face folder
with a `resnet`, `vit` or `deit`, whose classes are those of ImageNet's folders, sorted. The authors' teacher is a
RegNetY-16GF, which we do not have; with it they report 83.4 %. We have not run it.
"""

from dataclasses import replace

from deit_s_distilled import experiment as base

from t5x_lite.models import PRESETS

experiment = replace(base, model=replace(PRESETS["deit-b-distilled"], drop_path_rate=0.1))
