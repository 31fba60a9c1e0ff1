"""Other people's checkpoints: their folders, their names for parameters, and ours."""

from t5x_lite.convert.elmo import find_elmo, import_elmo
from t5x_lite.convert.huggingface import export_folder, import_folder, is_huggingface_folder
from t5x_lite.convert.t5x import find_t5x_checkpoint, import_t5x

__all__ = [
    "export_folder",
    "find_elmo",
    "find_t5x_checkpoint",
    "import_elmo",
    "import_folder",
    "import_t5x",
    "is_huggingface_folder",
]
