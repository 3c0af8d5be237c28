"""Every kind of image file becomes upright 8-bit pixels, or a reason why not."""

from __future__ import annotations

import contextlib
import io
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from acclimate.data.decode import UnreadableImageError, decode
from acclimate.data.preprocessing import Preprocessing

SIZE = (6, 8)  # height, width
COLOUR = Preprocessing(size=SIZE)
GREY = Preprocessing(size=SIZE, mean=(0.5,), std=(0.5,))


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def plain(mode: str, colour: object) -> Image.Image:
    return Image.new(mode, (SIZE[1], SIZE[0]), colour)


def middle(data: bytes, wanted: Preprocessing = COLOUR) -> list[int]:
    return decode(data, wanted)[:, 3, 4].tolist()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "TIFF", "PPM", "JPEG", "WEBP"])
def test_colour_in_every_format(kind):
    found = middle(encoded(plain("RGB", (200, 100, 40)), kind))
    assert np.abs(np.array(found) - [200, 100, 40]).max() <= 4  # some of them are lossy


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "TIFF", "PPM", "JPEG"])
def test_grey_in_every_format(kind):
    data = encoded(plain("L", 77), kind)
    assert middle(data) == [77] * 3
    assert middle(data, GREY) == [77]


def test_black_and_white():
    assert middle(encoded(plain("1", 1), "PNG")) == [255] * 3


def test_palette():
    image = plain("P", 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    assert middle(encoded(image, "PNG")) == [10, 20, 30]


def test_palette_with_transparency_lies_on_white():
    image = plain("P", 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    assert middle(encoded(image, "PNG", transparency=1)) == [255] * 3
    assert middle(encoded(image, "PNG", transparency=b"\xff\x00")) == [255] * 3


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_alpha_lies_on_white(kind):
    assert middle(encoded(plain("RGBA", (0, 0, 0, 0)), kind)) == [255] * 3


def test_alpha_is_mixed_by_its_strength():
    assert middle(encoded(plain("LA", (0, 51)), "PNG")) == [204] * 3


def test_a_transparent_colour_of_a_grey_png_lies_on_white():
    assert middle(encoded(plain("L", 9), "PNG", transparency=9)) == [255] * 3


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(kind):
    red = middle(encoded(plain("CMYK", (0, 255, 255, 0)), kind))
    assert np.abs(np.array(red) - [255, 0, 0]).max() <= 4


def sixteen_bit(value: int) -> Image.Image:
    return Image.fromarray(np.full(SIZE, value, np.uint16))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize(("value", "expected"), [(0, 0), (200, 1), (32768, 128), (65535, 255)])
def test_sixteen_bits_are_scaled_not_clipped(kind, value, expected):
    assert middle(encoded(sixteen_bit(value), kind)) == [expected] * 3


@pytest.mark.parametrize(("value", "expected"), [(100, 100), (32768, 128), (65535, 255)])
def test_32_bit_integers_are_taken_for_the_range_they_fit(value, expected):
    data = encoded(Image.fromarray(np.full(SIZE, value, np.int32)), "TIFF")
    assert middle(data) == [expected] * 3


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, 0), (0.5, 128), (1.0, 255), (100.0, 100), (32768.0, 128)]
)
def test_floats_are_taken_for_the_range_they_fit(value, expected):
    data = encoded(Image.fromarray(np.full(SIZE, value, np.float32)), "TIFF")
    assert middle(data) == [expected] * 3


def test_other_ranges_are_stretched():
    ramp = np.linspace(-1, 1, 48, dtype=np.float32).reshape(SIZE)
    found = decode(encoded(Image.fromarray(ramp), "TIFF"), GREY)
    assert (found.min(), found.max()) == (0, 255)


def test_nan_pixels_are_unreadable():
    data = encoded(Image.fromarray(np.full(SIZE, np.nan, np.float32)), "TIFF")
    with pytest.raises(UnreadableImageError, match="NaN"):
        decode(data, COLOUR)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_an_animation_the_first_frame(kind):
    frames = [plain("RGB", (255, 255, 255)), plain("RGB", (0, 0, 0))]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert middle(data) == [255] * 3


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_orientation_turns_the_image(kind):
    # Lying on its side, white on the left: upright (orientation 6) white is on top.
    lying = Image.new("RGB", (32, 48))
    lying.paste((255, 255, 255), (0, 0, 16, 48))
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = decode(encoded(lying, kind, exif=exif), Preprocessing(size=(32, 48)))
    assert upright[0, 4].mean() > 240
    assert upright[0, -4].mean() < 15


def test_broken_exif_does_not_lose_the_image():
    data = encoded(plain("RGB", (200, 100, 40)), "JPEG", exif=b"Exif\x00\x00garbage")
    assert np.abs(np.array(middle(data)) - [200, 100, 40]).max() <= 4


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "TIFF", "WEBP", "PPM"])
def test_truncated_files_are_unreadable(kind):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    with pytest.raises(UnreadableImageError):
        decode(data[: len(data) // 2], COLOUR)


def test_the_reason_is_for_people():
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    jpeg = encoded(Image.fromarray(noise), "JPEG")
    with pytest.raises(UnreadableImageError, match="truncated"):
        decode(jpeg[:-500], COLOUR)
    with pytest.raises(UnreadableImageError, match="empty file"):
        decode(b"", COLOUR)
    with pytest.raises(UnreadableImageError, match="not an image"):
        decode(b"<html>not found</html>", COLOUR)


def test_a_decompression_bomb_is_too_large():
    header = struct.pack(
        "<2sIHHIIIiHHIIiiII", b"BM", 54, 0, 0, 54, 40, 30000, 30000, 1, 24, *[0] * 6
    )
    with pytest.raises(UnreadableImageError, match="too large"):
        decode(header, COLOUR)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP", "PPM"]), st.data())
@pytest.mark.filterwarnings("ignore")  # Pillow grumbles about odd tags
def test_damage_never_escapes(kind, data):
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    content = bytearray(encoded(Image.fromarray(noise), kind))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UnreadableImageError):  # any other error fails the test
        assert decode(bytes(content), COLOUR).shape == COLOUR.shape


# With simplejpeg (the extra "fast") or without it, the pixels have to be the same.


def photo(size: tuple[int, int] = (24, 32)) -> Image.Image:
    rng = np.random.default_rng(1)
    coarse = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize(size[::-1], Image.Resampling.BICUBIC), dtype=np.int16)
    noisy = smooth + rng.integers(-20, 21, smooth.shape)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def outcome(data: bytes, wanted: Preprocessing) -> object:
    try:
        return decode(data, wanted).tolist()
    except UnreadableImageError as error:
        return str(error)


def same_without_simplejpeg(data: bytes, wanted: Preprocessing) -> bool:
    with_it = outcome(data, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acclimate.data.decode._simplejpeg", lambda: None)
        return with_it == outcome(data, wanted)


@pytest.fixture
def fast(monkeypatch):
    """The images that simplejpeg decoded."""
    module = pytest.importorskip("simplejpeg")
    taken = []

    class Counting:
        @staticmethod
        def decode_jpeg(*arguments, **options):
            taken.append(module.decode_jpeg(*arguments, **options))
            return taken[-1]

    monkeypatch.setattr("acclimate.data.decode._simplejpeg", lambda: Counting)
    return taken


@pytest.mark.parametrize("size", [(24, 32), (17, 23), (224, 224)])
@pytest.mark.parametrize(
    "options",
    [
        {"quality": 95, "subsampling": 0},
        {"quality": 75, "subsampling": 1},
        {"quality": 85, "subsampling": 2},
        {"quality": 30, "progressive": True},
        {"quality": 85, "keep_rgb": True},
        {"quality": 85, "restart_marker_rows": 1},
        {"quality": 85, "optimize": True},
    ],
)
def test_simplejpeg_decodes_to_the_very_pixels_of_pillow(fast, size, options):
    data = encoded(photo(size), "JPEG", **options)
    assert same_without_simplejpeg(data, Preprocessing(size=size, resize=40))
    assert len(fast) == 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_images_are_turned_with_simplejpeg_too(fast, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(photo(), "JPEG", exif=exif)
    for size in [(24, 32), (32, 24)]:
        assert same_without_simplejpeg(data, Preprocessing(size=size))
    assert len(fast) == (orientation == 1)


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_grey_and_cmyk_are_left_to_pillow(fast, mode):
    data = encoded(photo().convert(mode), "JPEG")
    assert same_without_simplejpeg(data, Preprocessing(size=(24, 32)))
    assert fast == []


def test_images_to_be_resized_or_made_grey_are_left_to_pillow(fast):
    data = encoded(photo(), "JPEG")
    assert decode(data, Preprocessing(size=(12, 16))).shape == (3, 12, 16)
    assert decode(data, Preprocessing(size=(24, 32), mean=(0.5,), std=(0.5,))).shape == (1, 24, 32)
    assert fast == []


@settings(max_examples=150, deadline=None)
@given(st.data())
@pytest.mark.filterwarnings("ignore")
def test_damage_is_judged_by_pillow_alone(data):
    pytest.importorskip("simplejpeg")
    content = bytearray(encoded(photo(), "JPEG", quality=60))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    kept = data.draw(st.integers(len(content) // 2, len(content)))
    assert same_without_simplejpeg(bytes(content[:kept]), Preprocessing(size=(24, 32)))
