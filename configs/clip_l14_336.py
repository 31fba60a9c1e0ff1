"""CLIP with ViT-L/14 at 336 x 336 (Radford et al. 2021, section 2.5 and table 18): one more epoch after clip_l14.

    python -m t5x_lite train configs/clip_l14_336.py --start.folder runs/clip_l14
    python -m t5x_lite plan configs/clip_l14_336.py --topology v5p:4x4x4

configs/clip_l14.py comes before it: positions of 16 x 16 patches are interpolated to 24 x 24. The authors learn at
2e-5 and report 76.2 % on ImageNet without its labels (table 11). We have not run it.
"""

from dataclasses import replace

from clip_b32 import pairs
from clip_l14 import experiment as base

from t5x_lite.images.augmentation import Augmentation
from t5x_lite.models import PRESETS
from t5x_lite.objectives import ContrastiveLanguageImage
from t5x_lite.training import FromModel

SIZE = (336, 336)
steps = pairs // 32_768

experiment = replace(
    base,
    model=PRESETS["clip-l-14-336"],
    objective=ContrastiveLanguageImage(
        augmentation=Augmentation(SIZE, area=(0.9, 1.0), flip=0.0, normalization="clip"), canvas_size=(384, 384)
    ),
    start=FromModel("runs/clip_l14"),
    optimizer=replace(base.optimizer, schedule=replace(base.optimizer.schedule, peak=2e-5, total_steps=steps)),
    steps=steps,
)
