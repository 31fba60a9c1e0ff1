"""Files of every sort against Pillow and NumPy, and files that are broken or made to do harm."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from t5x_lite.images import BadImageError, decode_image, encode_array, picture_size, stored_image

HEIGHT, WIDTH = 13, 21
CANVAS = (HEIGHT, WIDTH, 3)


def saved(picture, file_format="PNG", **options) -> bytes:
    file = io.BytesIO()
    picture.save(file, file_format, **options)
    return file.getvalue()


def photograph(width=120, height=90, mode="RGB"):
    """Smooth waves of colour and a sharp corner."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / 17) * 50 + np.cos(y / 23) * 60 + 128, np.sin((x + y) / 31) * 100 + 128, (x * 255) // width]
    pixels = np.stack(waves, axis=-1).astype(np.uint8)
    pixels[: height // 3, : width // 4] = (250, 20, 90)
    return Image.fromarray(pixels).convert(mode)


def on_canvas(picture, size=(WIDTH, HEIGHT), mode="RGB"):
    return np.asarray(picture.convert(mode).resize(size, Image.Resampling.BILINEAR))


@pytest.mark.parametrize(
    ("file_format", "options"),
    [
        *(("PNG", {}), ("WEBP", {"lossless": True}), ("BMP", {})),
        *(("JPEG", {"quality": 95}), ("JPEG", {"progressive": True}), ("WEBP", {"quality": 90})),
    ],
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_it_is_what_pillow_makes_of_the_file(file_format, options, mode):
    content = saved(photograph(WIDTH * 2 - 1, HEIGHT + 4, mode), file_format, **options)
    np.testing.assert_array_equal(decode_image(content, CANVAS), on_canvas(Image.open(io.BytesIO(content))))
    grey = decode_image(content, (HEIGHT, WIDTH, 1))
    assert grey.shape == (HEIGHT, WIDTH, 1) and grey.dtype == np.uint8
    difference = grey[..., 0].astype(int) - on_canvas(Image.open(io.BytesIO(content)), mode="L")
    assert abs(difference).max() <= 3, "libjpeg's luminance is rounded once, Pillow's after the colours"


def test_a_picture_of_the_canvas_size_keeps_its_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    np.testing.assert_array_equal(decode_image(encode_array(pixels), CANVAS), pixels)
    red = decode_image(encode_array(pixels[..., 0]), (HEIGHT, WIDTH, 1))
    np.testing.assert_array_equal(red, pixels[..., :1])
    grey = decode_image(encode_array(pixels[..., :1]), CANVAS)
    assert (grey == pixels[..., :1]).all()


@pytest.mark.parametrize(("times", "most"), [(2, 4), (5, 4), (9, 4)])
def test_a_large_jpeg_is_scaled_while_it_is_decoded(times, most, monkeypatch):
    """To no fewer pixels than the canvas has, and close to what all of its pixels give."""
    content = saved(photograph(WIDTH * times, HEIGHT * times + 3), "JPEG", quality=95)
    sizes, resize = [], Image.Image.resize
    monkeypatch.setattr(Image.Image, "resize", lambda self, *a, **b: sizes.append(self.size) or resize(self, *a, **b))
    decoded = decode_image(content, CANVAS)
    monkeypatch.undo()
    assert WIDTH <= sizes[0][0] < 2 * WIDTH + 8 and sizes[0][1] >= HEIGHT
    whole = on_canvas(Image.open(io.BytesIO(content)))
    assert abs(decoded.astype(int) - whole).mean() < most


def test_the_average_is_over_all_pixels_that_one_covers():
    checks = np.indices((HEIGHT * 8, WIDTH * 8)).sum(axis=0).astype(np.uint8) % 2 * 255
    assert abs(decode_image(encode_array(checks), CANVAS).astype(int) - 127).max() <= 1


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
def test_exif_turns_it_upright(turn, file_format):
    exif = Image.Exif()
    exif[0x0112] = turn
    content = saved(photograph(40, 25), file_format, exif=exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    assert picture_size(content) == upright.size[::-1] == ((25, 40) if turn < 5 else (40, 25))
    difference = decode_image(content, CANVAS).astype(int) - on_canvas(upright)
    assert abs(difference).max() <= 1
    assert stored_image(content, (25, 40, 3)) == (content, picture_size(content), False)


@pytest.mark.parametrize("exif", [b"", b"MM\0*\xff\xff\xff\xff", b"II*\0\x08\0\0\0\xff\xff" + bytes(range(99))])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_bad_exif_is_no_reason_to_lose_a_picture(exif):
    content = saved(photograph(), "JPEG", exif=b"Exif\0\0" + exif)
    assert decode_image(content, CANVAS).shape == CANVAS and picture_size(content) == (90, 120)
    assert stored_image(content, (90, 120, 3)).is_new == (exif != b""), "what Pillow warns of is not kept"


def test_what_is_transparent_is_white():
    pixels = np.zeros((HEIGHT, WIDTH, 4), np.uint8)
    pixels[..., 0], pixels[:, : WIDTH // 2, 3] = 200, 255
    pixels[0, 0, 3] = 51  # a fifth
    for content in (encode_array(pixels), saved(Image.fromarray(pixels), "WEBP", lossless=True, exact=True)):
        decoded = decode_image(content, CANVAS)
        np.testing.assert_array_equal(decoded[1, 0], [200, 0, 0])
        np.testing.assert_array_equal(decoded[1, -1], [255, 255, 255])
        np.testing.assert_allclose(decoded[0, 0], [244, 204, 204], atol=1)
        assert decode_image(content, (HEIGHT, WIDTH, 1))[1, -1] == 255
    grey = saved(Image.fromarray(pixels).convert("LA"))
    assert decode_image(grey, CANVAS)[1, -1].tolist() == [255, 255, 255]


def test_a_palette_and_its_transparent_colour():
    picture = Image.new("P", (WIDTH, HEIGHT), 1)
    picture.putpalette([10, 20, 30, 200, 100, 50])
    picture.putpixel((0, 0), 0)
    assert decode_image(saved(picture), CANVAS)[0, :2].tolist() == [[10, 20, 30], [200, 100, 50]]
    for file_format in ("PNG", "GIF"):
        seen = decode_image(saved(picture, file_format, transparency=0), CANVAS)
        assert seen[0, :2].tolist() == [[255, 255, 255], [200, 100, 50]]
    seen = decode_image(saved(picture, transparency=bytes([128, 255])), CANVAS)
    np.testing.assert_allclose(seen[0, :2], [[132, 137, 142], [200, 100, 50]], atol=2)


def test_sixteen_bits_and_one():
    levels = np.linspace(0, 65535, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH).astype(np.uint16)
    decoded = decode_image(saved(Image.fromarray(levels)), CANVAS)
    np.testing.assert_array_equal(decoded, np.repeat(np.rint(levels / 257)[..., None], 3, axis=2))
    black = Image.new("1", (WIDTH, HEIGHT))
    black.putpixel((3, 2), 1)
    decoded = decode_image(saved(black), (HEIGHT, WIDTH, 1))
    assert decoded[2, 3] == 255 and decoded.sum() == 255


def test_cmyk():
    content = saved(photograph().convert("CMYK"), "JPEG", quality=95)
    difference = decode_image(content, CANVAS).astype(int) - on_canvas(photograph())
    assert abs(difference).mean() < 12
    kept = stored_image(content, (90, 120, 3))
    assert kept.is_new and Image.open(io.BytesIO(kept.content)).mode == "RGB"


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame(file_format):
    frames = [Image.new("RGB", (WIDTH, HEIGHT), colour) for colour in ("red", "blue", "white")]
    content = saved(frames[0], file_format, save_all=True, append_images=frames[1:], lossless=True)
    assert abs(decode_image(content, CANVAS)[5, 5].astype(int) - [255, 0, 0]).max() <= 2
    kept = stored_image(content, CANVAS)
    assert kept.is_new and not getattr(Image.open(io.BytesIO(kept.content)), "is_animated", False)
    np.testing.assert_array_equal(decode_image(kept.content, CANVAS), decode_image(content, CANVAS))


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1)])
def test_any_proportions(size):
    content = saved(Image.new("RGB", size, (9, 8, 7)))
    assert (decode_image(content, CANVAS) == [9, 8, 7]).all()
    kept = stored_image(content, CANVAS)
    assert kept.size == size[::-1] and (decode_image(kept.content, CANVAS) == [9, 8, 7]).all()


def test_what_a_store_keeps():
    """Files as they are; large ones at twice the canvas, JPEGs as JPEG; too many bytes and slow formats anew."""
    canvas = (30, 40, 3)
    for file_format in ("JPEG", "PNG", "WEBP"):
        content = saved(photograph(), file_format)
        assert stored_image(content, canvas) == (content, (90, 120), False)
    for file_format, new in (("JPEG", "JPEG"), ("PNG", "PNG"), ("WEBP", "PNG"), ("BMP", "PNG")):
        content = saved(photograph(400, 300), file_format)
        kept = stored_image(content, canvas)
        assert kept.is_new and kept.size == (300, 400) == picture_size(content)
        opened = Image.open(io.BytesIO(kept.content))
        assert opened.format == new and opened.size == (80, 60)
        difference = decode_image(kept.content, canvas).astype(int) - decode_image(content, canvas)
        assert abs(difference).mean() < 4
    padded = saved(photograph(), "PNG")
    padded = padded[:33] + _chunk(b"prIv", bytes(100_000)) + padded[33:]
    assert stored_image(padded, canvas).is_new and len(stored_image(padded, canvas).content) < 50_000
    assert Image.open(io.BytesIO(stored_image(saved(photograph(), "PNG"), (9, 9, 1)).content)).mode == "L"


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width, height, data=b"") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(data)) + _chunk(b"IEND", b"")


def gif(width, height) -> bytes:
    content = bytearray(saved(Image.new("P", (5, 5)), "GIF"))
    content[6:10] = struct.pack("<HH", width, height)
    return bytes(content)


def many_scans() -> bytes:
    """A progressive JPEG of 16,000 x 11,000 pixels by its header, whose last scan comes a hundred times."""
    content = saved(photograph(), "JPEG", progressive=True)
    start = content.rindex(b"\xff\xda")
    frame = content.index(b"\xff\xc2") + 5
    content = content[:frame] + struct.pack(">HH", 11_000, 16_000) + content[frame + 4 :]
    return content[:start] + content[start:-2] * 100 + b"\xff\xd9"


JPEG, PNG, WEBP = (saved(photograph(), one) for one in ("JPEG", "PNG", "WEBP"))
BAD = {
    "empty": (b"", "empty", "empty (0 bytes)"),
    "text": (b"<not a picture at all>", "not a picture", "begins with b'<not a pictu"),
    "zeros": (bytes(1000), "not a picture", "begins with"),
    "half a JPEG": (JPEG[: len(JPEG) // 2], "truncated", "truncated"),
    "the start of a JPEG": (JPEG[:20], "damaged", "damaged"),
    "half a PNG": (PNG[: len(PNG) // 2], "truncated", "truncated"),
    "half a WebP": (WEBP[: len(WEBP) // 2], None, None),
    "a PNG without pixels": (png(5, 5), "truncated", "truncated"),
    "a flipped bit": (PNG[:60] + bytes([PNG[60] ^ 1]) + PNG[61:], "damaged", "damaged"),
    "a bomb in PNG": (png(60_000, 60_000), "too large", "3,600,000,000 pixels"),
    "beyond what is read": (png(20_000, 10_000), "too large", "200,000,000 pixels; at most 178,956,970"),
    "a bomb in scans": (many_scans(), "too large", "11,000 x 16,000 pixels in 10"),
    "a bomb in GIF": (gif(60_000, 60_000), "too large", "pixels"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "not the file; fetch it by"),
    "TIFF": (saved(photograph(), "TIFF"), "in a format that is not read", "TIFF, which is not read; convert it"),
    "PDF": (saved(photograph(), "PDF"), "in a format that is not read", "PDF"),
    "AVIF": (b"\0\0\0\x20ftypavif" + bytes(99), "in a format that is not read", "AVIF or HEIC"),
    "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "in a format that is not read", "SVG"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n(x) system\n", "not a picture", "begins with"),
    "a pickle": (b"\x80\x04\x95cos\nsystem\n", "not a picture", "begins with"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("read", [decode_image, stored_image])
def test_what_cannot_be_read_is_one_sentence(name, read):
    content, problem, words = BAD[name]
    with warnings.catch_warnings(), pytest.raises(BadImageError) as raised:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        read(content, CANVAS)
    message = str(raised.value)
    assert problem is None or (raised.value.problem == problem and words in message), message
    assert message.count("; ") >= 1 and "\n" not in message and len(message) < 250 and "Traceback" not in message


def test_every_prefix_and_many_changes_end_in_a_picture_or_a_sentence():
    random, ended = np.random.default_rng(0), {"picture": 0, "sentence": 0}
    files = [*(saved(photograph(30, 20), one) for one in ("JPEG", "PNG", "WEBP", "GIF", "BMP"))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for content in files:
            changed = [content[:end] for end in range(0, len(content), 23)]
            for _ in range(40):
                other = bytearray(content)
                other[random.integers(len(content))] = random.integers(256)
                changed.append(bytes(other))
            for one in changed:
                try:
                    kept = stored_image(one, (8, 8, 3)).content
                    assert decode_image(kept, (8, 8, 3)).shape == (8, 8, 3), "what was kept can be read, unwarned"
                    ended["picture"] += 1
                except BadImageError:
                    ended["sentence"] += 1
    assert min(ended.values()) > 50


def test_the_size_is_known_without_pixels():
    assert picture_size(png(640, 480)) == (480, 640)
    with pytest.raises(BadImageError, match="truncated"):
        decode_image(png(640, 480), CANVAS)
