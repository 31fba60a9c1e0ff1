"""Pictures: the bytes of files to pixels."""

from t5x_lite.images.decoding import BadImageError, decode_image, encode_array, picture_size, stored_image

__all__ = ["BadImageError", "decode_image", "encode_array", "picture_size", "stored_image"]
