"""The bytes of picture files to arrays of pixels, and to the bytes that a store keeps.

Files may come from anywhere: five formats are read, by Pillow, up to a number of pixels, and whatever is wrong with one
ends in a `BadImageError`.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from t5x_lite.errors import InputError

Picture = Any
"""A `PIL.Image.Image`; Pillow is imported where it is used."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
MOST_PIXELS = (1 << 29) // 3
"""Of a picture: 178,956,970, beyond which Pillow refuses files as decompression bombs too."""
_MOST_SCANNED = 20 * MOST_PIXELS
"""Pixels times scans of a progressive JPEG, each of which goes over all pixels again."""
_UNREAD_FORMATS = {
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"%PDF": "PDF",
    b"<svg": "SVG",
    b"<?xml": "XML or SVG",
    b"8BPS": "Photoshop",
    b"\0\0\1\0": "ICO",
}
_KEPT_MODES = {"L", "RGB", "P", "1", "LA", "RGBA"}
_KEPT_PIXELS = 16
_KEPT_BYTES = 4
_LEAST_KEPT_BYTES = 64 << 10


class BadImageError(InputError):
    """Bytes that are not a picture which can be read.

    Attributes:
      problem: what is wrong, in words that are the same for all such files, such as "truncated".
      detail: what is wrong with this one.
    """

    def __init__(self, problem: str, detail: str = "", remedy: str = "copy or export it again") -> None:
        self.problem, self.detail = problem, detail or problem
        super().__init__(f"the picture is {self.detail}; {remedy}")


class StoredImage(NamedTuple):
    """A picture as a store keeps it."""

    content: bytes
    """Of a JPEG, PNG or WebP file."""
    size: tuple[int, int]
    """Height and width of the picture that it was made of, as it is seen."""
    is_new: bool
    """Whether it was encoded anew."""


def decode_image(content: bytes | Picture, shape: tuple[int, int, int]) -> UInt8[np.ndarray, "H W C"]:
    """The picture in the bytes of a file, stretched to the canvas `shape`, [H, W, C] with 1 (grey) or 3 (RGB) channels.
    A Pillow picture is read in the same way.

    JPEG, PNG, WebP, and the first frame of GIF, BMP and animations. Turned upright as its EXIF data say, what is
    transparent is white, 16 bits become 8. Resampling is bilinear over all pixels that a new one covers, as
    `jax.image.resize(..., "bilinear")` has it; a JPEG that is twice as large and more is decoded at 1/2, 1/4 or 1/8 of
    its size first, which is several times as fast.

    Raises `BadImageError` where the bytes are not such a picture, or it has more than `MOST_PIXELS`.
    """
    height, width, channels = shape
    with _opened(content) as picture:
        turn = _orientation(picture)
        canvas = (width, height) if turn < 5 else (height, width)
        picture.draft("L" if channels == 1 else "RGB", canvas)
        pixels = _to_grey_or_colour(picture, canvas, channels)
        pixels = np.asarray(_upright(pixels, turn))
        return pixels.reshape(height, width, channels)


def picture_size(content: bytes | Picture) -> tuple[int, int]:
    """(height, width) of the picture in the bytes of a file, turned upright; its pixels are not read.

    Or that of a Pillow picture. Raises `BadImageError` as `decode_image`, but for what is wrong with the pixels.
    """
    with _opened(content) as picture:
        return _size(picture)


def stored_image(content: bytes, shape: tuple[int, int, int]) -> StoredImage:
    """The bytes that a store keeps of a picture which is read onto the canvas `shape`, [H, W, C].

    They are those of the file where it is a JPEG, PNG or WebP of 8 bits with one frame, at most 16 times the canvas's
    pixels, and at most four times its bytes (or 64 KiB). Other pictures are encoded anew, and scaled down to twice the
    canvas: JPEGs as JPEG of quality 95, others as PNG.

    Raises `BadImageError` where any of the pixels cannot be read: each is decoded here, a JPEG's at 1/8 of its size.
    """
    height, width, channels = shape
    # Python's registry of warnings is not safe for threads: this runs in one, and `decode_image` reads what it kept.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _opened(content) as picture:
            size, is_jpeg = _size(picture), picture.format in ("JPEG", "MPO")
            is_kept = (
                (is_jpeg or picture.format in ("PNG", "WEBP"))
                and picture.mode in _KEPT_MODES
                and not getattr(picture, "is_animated", False)
                and size[0] * size[1] <= _KEPT_PIXELS * height * width
                and len(content) <= max(_KEPT_BYTES * height * width * channels, _LEAST_KEPT_BYTES)
            )
            if is_kept:
                picture.draft(None, (1, 1))
                picture.load()
    if is_kept and not caught:
        return StoredImage(content, size, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pixels = decode_image(content, (min(size[0], 2 * height), min(size[1], 2 * width), channels))
    return StoredImage(_encode(pixels, "JPEG" if is_jpeg else "PNG"), size, True)


def encode_array(pixels: UInt8[np.ndarray, "*shape"]) -> bytes:
    """The bytes of a PNG file with these pixels, [H, W] or [H, W, C] with 1, 3 or 4 channels."""
    return _encode(pixels, "PNG")


def _encode(pixels: np.ndarray, file_format: str) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    options = {"quality": 95, "subsampling": 0} if file_format == "JPEG" else {}
    Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels).save(file, file_format, **options)
    return file.getvalue()


@contextmanager
def _opened(content: bytes | Picture) -> Iterator[Picture]:
    """The picture, its pixels unread; whatever goes wrong meanwhile is a `BadImageError`."""
    from PIL import Image, UnidentifiedImageError

    if content == b"":
        raise BadImageError("empty", "empty (0 bytes)")
    try:
        is_file = isinstance(content, bytes)
        # Of Pillow's a copy: decoding changes a picture whose pixels are unread.
        opened = Image.open(io.BytesIO(content), formats=FORMATS) if is_file else nullcontext(content.copy())
        with opened as picture:
            width, height = picture.size
            scans = content.count(b"\xff\xda") if is_file and picture.format in ("JPEG", "MPO") else 1
            if width * height > MOST_PIXELS:
                raise _too_large(f"{height:,} x {width:,} pixels")
            if scans > 1 and scans * width * height > _MOST_SCANNED:
                raise _too_large(f"{height:,} x {width:,} pixels in {scans:,} scans")
            yield picture
    except BadImageError:
        raise
    except Image.DecompressionBombError as error:
        pixels = next((word for word in str(error).split() if word.strip("(").isdigit()), "").strip("(")
        raise _too_large(f"{int(pixels or 0):,} pixels") from None
    except UnidentifiedImageError:
        raise _unidentified(content) from None
    except MemoryError:
        raise _too_large("more pixels than there is memory for") from None
    # A damaged file ends in whatever exception its format's reader happens on.
    except Exception as error:
        reason = " ".join(f"{error}".split())[:100] or type(error).__name__
        if "truncated" in reason or isinstance(error, EOFError):
            raise BadImageError("truncated", f"truncated ({reason})") from None
        raise BadImageError("damaged", f"damaged ({reason})") from None


def _too_large(size: str) -> BadImageError:
    return BadImageError("too large", f"too large ({size}; at most {MOST_PIXELS:,} are read)", "scale it down")


def _unidentified(content: bytes) -> BadImageError:
    if content.startswith(b"version https://git-lfs"):
        raise BadImageError("a Git LFS pointer", "a Git LFS pointer, not the file", "fetch it by git lfs pull")
    names = ", ".join(name.replace("WEBP", "WebP") for name in FORMATS)
    start = content[:64].lstrip().lower() if content[:1] in b" <\r\n\t" else content
    known = next((name for magic, name in _UNREAD_FORMATS.items() if start.startswith(magic)), "")
    known = {b"ftyp": "AVIF or HEIC", b"jP  ": "JPEG 2000", b"JXL ": "JPEG XL"}.get(content[4:8], known)
    if known:
        return BadImageError("in a format that is not read", f"{known}, which is not read", f"convert it to {names}")
    for magic in (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8", b"BM"):
        if content.startswith(magic):
            return BadImageError("damaged", "damaged, or truncated in its header")
    return BadImageError("not a picture", f"not a picture (it begins with {content[:12]!r})", f"give {names}")


def _orientation(picture: Picture) -> int:
    """1 to 8, as EXIF has it; 1 where nothing can be read. To be called before the pixels are read."""
    from PIL import ExifTags

    if "exif" not in picture.info and picture.format not in ("JPEG", "MPO"):
        return 1
    try:
        turn = picture.getexif().get(ExifTags.Base.Orientation, 1)
        return turn if turn in range(1, 9) else 1
    except Exception:  # EXIF data are a file format of their own, and no reason to lose a picture
        return 1


def _size(picture: Picture) -> tuple[int, int]:
    width, height = picture.size
    return (height, width) if _orientation(picture) < 5 else (width, height)


def _upright(picture: Picture, turn: int) -> Picture:
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return picture.transpose(turns[turn]) if turn in turns else picture


def _to_grey_or_colour(picture: Picture, canvas: tuple[int, int], channels: int) -> Picture:
    """The picture on a canvas (width, height) in mode L or RGB."""
    from PIL import Image

    mode = "L" if channels == 1 else "RGB"
    if picture.mode.startswith("I") or picture.mode == "F":  # 16 bits, grey
        levels = np.asarray(picture).clip(0, 65535).astype(np.uint32)
        levels *= 255  # in place: there may be many
        levels += 32767
        levels //= 65535
        picture = Image.fromarray(levels.astype(np.uint8))
    elif picture.has_transparency_data:
        # Pillow multiplies by the opacity before it resizes, so that colours of what is not seen do not bleed.
        picture = picture if picture.mode == "RGBA" else picture.convert("RGBA")
        picture = picture.resize(canvas, Image.Resampling.BILINEAR)
        white = Image.new("RGBA", canvas, (255, 255, 255, 255))
        return Image.alpha_composite(white, picture).convert("RGB").convert(mode)
    elif picture.mode not in ("L", "RGB"):
        picture = picture.convert("L" if picture.mode == "1" else "RGB")
    if picture.mode != mode == "L":
        picture = picture.convert(mode)
    picture = picture.resize(canvas, Image.Resampling.BILINEAR)
    # Pillow copies a picture that has the mode already.
    return picture if picture.mode == mode else picture.convert(mode)
