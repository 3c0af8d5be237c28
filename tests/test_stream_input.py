"""What a stream takes: images of any size with the preprocessing of the model's record."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import acclimate
from acclimate.data import Preprocessing, open_images
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models import LoadedModel
from acclimate.models.networks.digits import load_digits_model
from acclimate.stream import Stream
from nets import CLASSES, bn_net, images

PREPROCESSING = Preprocessing(size=(8, 8), resize=10, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
PHOTOS = np.random.default_rng(0).integers(0, 256, (20, 15, 12, 3), dtype=np.uint8)


def stream(**options: object) -> Stream:
    loaded = LoadedModel(name="py:mine:net", model=bn_net(), preprocessing=PREPROCESSING)
    return Stream(loaded, "ent", **options)


def as_adapt_reads(photos: np.ndarray) -> torch.Tensor:
    source = open_images(photos, preprocessing=PREPROCESSING)
    return PREPROCESSING.normalize(source.read(torch.arange(len(source))))


def test_uint8_images_of_any_size_are_fitted_as_adapt_fits_them() -> None:
    expected = stream()(as_adapt_reads(PHOTOS))
    tensor = torch.from_numpy(PHOTOS).permute(0, 3, 1, 2)
    for given in (PHOTOS, PHOTOS.transpose(0, 3, 1, 2), tensor):
        assert torch.equal(stream()(given), expected)


def test_grey_images_become_colour_where_the_model_wants_it() -> None:
    assert stream()(PHOTOS[..., 0]).shape == (20, CLASSES)


def test_images_of_the_models_size_are_only_normalised() -> None:
    small = torch.from_numpy(PHOTOS).permute(0, 3, 1, 2)[:, :, :8, :8].contiguous()
    expected = stream()(PREPROCESSING.normalize(small))
    assert torch.equal(stream()(small), expected)
    assert torch.equal(stream()(small.numpy()), expected)


def test_float_batches_are_model_input() -> None:
    batch = images(16)
    expected = Stream(bn_net(), "ent")(batch)
    assert torch.equal(stream()(batch), expected)
    assert torch.equal(stream()(batch.numpy()), expected)


def test_the_models_precision_is_kept() -> None:
    assert stream().double()(PHOTOS).dtype == torch.float64


@pytest.mark.parametrize("given", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_float_batches_of_another_precision_are_converted(
    dtype: torch.dtype, given: torch.dtype
) -> None:
    half = Stream(bn_net().to(dtype), "ent")
    for seed in range(2):
        logits = half(images(16, seed=seed).to(given))
        assert logits.dtype == dtype
        assert bool(logits.isfinite().all())
    assert half(images(16).numpy()).dtype == dtype
    assert half.learner.steps == 3
    assert half.event_count == 0


def test_an_empty_uint8_batch_teaches_nothing() -> None:
    empty = stream()
    assert empty(PHOTOS[:0]).shape == (0, CLASSES)
    assert empty.learner.steps == 0


def test_a_loaded_model_brings_its_preprocessing() -> None:
    photos = digits("held-out", shifted=True)[0][:100]
    loaded = load_digits_model()
    assert loaded.preprocessing is not None
    given = Stream(loaded, "bn")(photos)
    ready = loaded.preprocessing.normalize(torch.from_numpy(photos)[:, None])
    torch.testing.assert_close(given, Stream(loaded.model, "bn")(ready))


def test_preprocessing_can_be_given_and_wins() -> None:
    other = Preprocessing(size=(8, 8))
    assert stream(preprocessing=other).preprocessing == other
    plain = Stream(bn_net(), "ent", preprocessing=PREPROCESSING)
    assert torch.equal(plain(PHOTOS), stream()(PHOTOS))


def test_the_repr_shows_the_preprocessing() -> None:
    shown = stream()
    shown(PHOTOS)
    assert repr(shown).splitlines() == [
        "Stream: step 1, learning",
        "  model          py:mine:net",
        "  recipe         ent",
        "  predictions    before the update",
        "  guard          rollback, 0 events",
        f"  preprocessing  {PREPROCESSING.describe()}",
    ]
    shown.pause()
    assert repr(shown).startswith("Stream: step 1, not learning\n")
    assert "none: takes float model input only" in repr(Stream(bn_net()))


def test_uint8_images_need_a_preprocessing() -> None:
    with pytest.raises(AcclimateError, match=r"uint8 images must be scaled .*preprocessing=Pre"):
        Stream(bn_net(), "ent")(PHOTOS)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (PHOTOS[0], r"expected uint8 images as N×H×W×3, .* got 15×12×3; one image is"),
        (np.zeros((2, 9, 9, 4), np.uint8), r"expected uint8 images as .* got 2×9×9×4"),
        (PHOTOS.astype(np.int64), r"expected images as uint8 .* got int64"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int32), r"expected images as uint8 .* got int32"),
        (PHOTOS / 255, r"looks like channels last"),
        (torch.zeros(2, 8, 8, 3), r"expected float images as N×3×H×W.*got 2×8×8×3"),
        (np.zeros((2, 1, 8, 8)), r"expected float images as N×3×H×W.*got 2×1×8×8"),
        (torch.zeros(3, 8, 8), r"expected float images as N×3×H×W.*got 3×8×8"),
        ([1, 2], r"expected a batch of images as a tensor or array .* got list"),
        (torch.zeros(2, 3, 8, 8).to_sparse(), r"expected images as a dense tensor .*sparse"),
        (torch.zeros(2, 3, 8, 8, device="meta"), r"expected images as a dense tensor .*meta"),
    ],
)
def test_other_shapes_and_types_are_refused_with_the_expected_ones(
    batch: object, message: str
) -> None:
    untouched = stream()
    with pytest.raises(AcclimateError, match=message):
        untouched(batch)
    assert untouched.learner.steps == 0


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(2, 1, 8, 8), r"1 × 1 × 8 × 8 .*expected 3 channels, .* got 1; preprocessing"),
        (torch.zeros(2, 4, 8, 8), r"expected 3 channels, .* got 4; .*--size, --mean and --std"),
        (torch.zeros(3, 8, 8), r"shape 1 × 8 × 8 .*expected four dimensions; one image is images"),
        (torch.zeros(2, 3), r"expected four dimensions"),
        (torch.zeros(2, 3, 1, 1), r"the model failed on images of shape 1 × 3 × 1 × 1"),
        (PHOTOS, r"uint8 images must be scaled .*preprocessing=Pre"),
    ],
)
@pytest.mark.parametrize("recipe", ["ent", "bn", "memo"])
def test_without_a_preprocessing_the_model_itself_refuses_before_anything_is_learnt(
    recipe: str, batch: object, message: str
) -> None:
    plain = Stream(bn_net(), recipe)
    with pytest.raises(AcclimateError, match=message):
        plain(batch)
    assert plain.learner.steps == 0
    plain(images(16))
    with pytest.raises(AcclimateError, match=message):
        plain(batch)
    assert torch.isfinite(plain(images(16))).all()


def test_unscaled_float_pixels_are_warned_of() -> None:
    with pytest.warns(AcclimateWarning, match=r"range from 0 to 255, as unscaled pixels do"):
        stream(options={"optimizer.lr": 0.0})(torch.from_numpy(PHOTOS).permute(0, 3, 1, 2).float())


def test_the_public_name_takes_images_too() -> None:
    assert acclimate.Stream(load_digits_model())(digits("held-out")[0][:32]).shape == (32, 10)
