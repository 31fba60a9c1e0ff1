"""Other people's checkpoints: their folders, their names for parameters, and ours."""

from t5x_lite.convert.huggingface import export_folder, import_folder, is_huggingface_folder

__all__ = ["export_folder", "import_folder", "is_huggingface_folder"]
