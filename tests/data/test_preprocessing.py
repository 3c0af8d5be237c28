"""How an image of any size becomes what the model was trained on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from acclimate.data import Preprocessing
from acclimate.errors import AcclimateError

sides = st.integers(1, 70)


@settings(max_examples=60, deadline=None)
@given(
    sides, sides, sides, sides, st.none() | sides, st.booleans(), st.sampled_from(["RGB", "L", "P"])
)
def test_any_image_gets_the_models_shape(width, height, crop_h, crop_w, resize, squash, mode):
    wanted = Preprocessing(size=(crop_h, crop_w), resize=resize, squash=squash)
    fitted = wanted.fit(Image.new(mode, (width, height)))
    assert fitted.shape == wanted.shape == (3, crop_h, crop_w)
    assert fitted.dtype == np.uint8


def test_a_image_of_the_models_size_is_not_touched_again():
    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    wanted = Preprocessing(size=(24, 24), resize=32)
    np.testing.assert_array_equal(wanted.fit(Image.fromarray(pixels)), pixels.transpose(2, 0, 1))


def test_the_centre_is_cut_out_after_the_shorter_side_is_resized():
    columns = np.zeros((10, 30, 3), np.uint8)
    columns[:, 10:20] = 255
    fitted = Preprocessing(size=(10, 10), resize=10).fit(Image.fromarray(columns))
    assert (fitted == 255).all()


def test_squash_keeps_everything_in_the_image():
    columns = np.zeros((10, 30, 3), np.uint8)
    columns[:, :15] = 255
    fitted = Preprocessing(size=(10, 10), squash=True, interpolation="nearest").fit(
        Image.fromarray(columns)
    )
    assert (fitted[..., :5] == 255).all()
    assert (fitted[..., 5:] == 0).all()


def test_a_short_resize_keeps_the_proportions_of_a_wide_crop():
    # 256 px would be narrower than the crop, so the image is enlarged as a whole.
    dot = Image.new("L", (100, 200))
    assert Preprocessing(size=(20, 300), resize=256, mean=(0.5,), std=(0.5,)).fit(dot).shape == (
        1,
        20,
        300,
    )


def test_one_mean_makes_images_grey():
    wanted = Preprocessing(size=(2, 2), mean=(0.5,), std=(0.25,))
    assert wanted.channels == 1
    assert wanted.fit(Image.new("RGB", (2, 2), (255, 255, 255))).tolist() == [[[255] * 2] * 2]


def test_normalize_is_the_textbook_formula_and_leaves_its_input_alone():
    wanted = Preprocessing(size=(4, 4))
    images = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    mean, std = torch.tensor(wanted.mean), torch.tensor(wanted.std)
    expected = (images / 255 - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(wanted.normalize(images), expected)
    floats = images.float()
    wanted.normalize(floats)
    assert torch.equal(floats, images.float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_standardize_divides_after_it_subtracts_to_the_bit(dtype):
    wanted = Preprocessing(size=(4, 4))
    images = torch.rand(5, 3, 4, 4).to(dtype)
    mean, std = (torch.tensor(values)[:, None, None] for values in (wanted.mean, wanted.std))
    expected = images.clone().sub_(mean).div_(std)
    assert torch.equal(wanted.standardize(images), expected)


def test_images_can_be_scaled_for_training_after_inference():
    wanted = Preprocessing(size=(1, 1), mean=(0.123,), std=(0.456,))
    with torch.inference_mode():
        wanted.normalize(torch.zeros(1, 1, 1, 1, dtype=torch.uint8))
    light = torch.ones(1, 1, 1, 1, requires_grad=True)
    wanted.standardize(light * 0.5).square().sum().backward()
    assert light.grad is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": (0, 4)},
        {"size": (4, 4), "interpolation": "fuzzy"},
        {"size": (4, 4), "mean": (0.5,)},
        {"size": (4, 4), "mean": (0.5,), "std": (0.0,)},
        {"size": (4, 4), "resize": 0},
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(AcclimateError, match="expected"):
        Preprocessing(**wrong)


def test_a_image_without_pixels_is_refused():
    with pytest.raises(AcclimateError, match="pixels"):
        Preprocessing(size=(4, 4)).fit(Image.new("RGB", (0, 4)))


def test_describe_lists_what_is_done():
    text = Preprocessing(size=(8, 9), resize=16, squash=True).describe()
    assert "both sides to 16 px (bilinear), centre 8×9" in text
    assert Preprocessing(size=(8, 9)).describe().startswith("8×9, mean")
