"""Torch data sets, loaders and anything that hands out images one by one or in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from acclimate.data import ClassList, ImageSource, Preprocessing, open_images
from acclimate.errors import AcclimateError, AcclimateWarning

SMALL = Preprocessing(size=(8, 8))
FLOATS = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
BYTES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
LABELS = [3, 1, 0, 2, 1, 0]


class Items(Dataset[Any]):
    """A map-style data set whose items a function makes."""

    def __init__(self, make: Callable[[int], Any], count: int = 6) -> None:
        self.make, self.count, self.reads = make, count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.make(index)


class Flow(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(FLOATS, LABELS, strict=True))


def everything(source: ImageSource) -> torch.Tensor:
    return source.read(torch.arange(len(source)))


def labels_of(source: ImageSource) -> list[int] | None:
    return None if source.labels is None else source.labels.tolist()


@pytest.mark.parametrize(
    ("make", "labelled"),
    [
        (lambda i: FLOATS[i], False),
        (lambda i: (FLOATS[i],), False),
        (lambda i: (FLOATS[i], f"path/{i}.png"), False),
        (lambda i: (FLOATS[i], LABELS[i]), True),
        (lambda i: [FLOATS[i].numpy(), torch.tensor(LABELS[i])], True),
        (lambda i: (FLOATS[i], np.int64(LABELS[i]), "metadata"), True),
        (lambda i: {"pixel_values": FLOATS[i], "labels": LABELS[i]}, True),
        (lambda i: {"image": FLOATS[i], "label": LABELS[i]}, True),
        (lambda i: {"img": FLOATS[i].double(), "id": i}, False),
    ],
)
def test_items_of_model_input(make, labelled):
    source = open_images(Items(make))
    assert torch.equal(everything(source), FLOATS)
    assert labels_of(source) == (LABELS if labelled else None)
    assert source.preprocessing is None
    assert list(source.names) == list("012345")


@pytest.mark.parametrize(
    "make",
    [
        lambda i: (Image.fromarray(BYTES[i]), LABELS[i]),
        lambda i: (BYTES[i], LABELS[i]),
        lambda i: (BYTES[i].transpose(2, 0, 1), LABELS[i]),
        lambda i: (torch.from_numpy(BYTES[i]).permute(2, 0, 1), LABELS[i]),
    ],
)
def test_items_of_pixels(make):
    source = open_images(Items(make), preprocessing=SMALL)
    np.testing.assert_array_equal(everything(source).numpy(), BYTES.transpose(0, 3, 1, 2))
    assert labels_of(source) == LABELS
    assert source.preprocessing == SMALL


def test_images_of_many_sizes_and_modes_are_fitted():
    modes = ["L", "RGBA", "P", "CMYK", "I;16", "F"]
    source = open_images(Items(lambda i: Image.new(modes[i], (9 + i, 20 - i))), preprocessing=SMALL)
    assert everything(source).shape == (6, 3, 8, 8)


def test_kept_or_read_again_the_images_are_the_same():
    dataset = Items(lambda i: (FLOATS[i], LABELS[i]))
    kept, again = open_images(dataset), open_images(dataset, cache=0)
    reads = dataset.reads
    assert torch.equal(everything(kept), FLOATS)
    assert dataset.reads == reads
    assert torch.equal(everything(again), FLOATS)
    assert dataset.reads == reads + 6
    assert kept.fingerprint() == again.fingerprint()


def test_the_fingerprint_follows_the_content():
    one, other = (open_images(TensorDataset(x)) for x in (FLOATS, FLOATS + 1))
    assert one.fingerprint() != other.fingerprint()


def test_subsets_and_other_wrappers_work():
    labels = torch.tensor(LABELS)
    source = open_images(Subset(TensorDataset(FLOATS, labels), [4, 0]))
    assert torch.equal(everything(source), FLOATS[[4, 0]])
    assert labels_of(source) == [1, 3]


def test_given_labels_take_the_place_of_those_found():
    source = open_images(TensorDataset(FLOATS, torch.tensor(LABELS)), labels=[9] * 6)
    assert labels_of(source) == [9] * 6


def test_labels_beyond_the_classes_are_refused():
    with pytest.raises(AcclimateError, match="model with 2 classes"):
        open_images(TensorDataset(FLOATS, torch.tensor(LABELS)), classes=ClassList(("a", "b")))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda i: FLOATS[i] / (i != 3), "item 3.*NaN or infinite"),
        (lambda i: FLOATS[i, :, : 8 - i], r"\(3, 8, 8\).*got \(3, 7, 8\).*item 1"),
        (lambda i: BYTES[i], "item 0.*preprocessing="),
        (lambda i: Image.fromarray(BYTES[i]), "item 0.*preprocessing="),
        (lambda i: "a.png", "item 0.*got str"),
        (lambda i: {"x": 1}, "pixel_values, image, img.*got x"),
        (lambda i: (), r"got \(\)"),
        (lambda i: FLOATS[i][0], "item 0.*N×C×H×W"),
    ],
)
def test_broken_items_are_named_at_opening(make, message):
    with pytest.raises(AcclimateError, match=message):
        open_images(Items(make))


def test_an_item_that_turns_nan_later_is_named_at_reading():
    images = FLOATS.clone()
    source = open_images(Items(lambda i: images[i]), cache=0)
    images[5] = torch.nan
    with pytest.raises(AcclimateError, match=r"item 5.*NaN"):
        everything(source)


def test_an_item_that_raises_is_named():
    def make(index: int) -> torch.Tensor:
        if index == 4:
            raise OSError("disk on fire")
        return FLOATS[index]

    with pytest.raises(AcclimateError, match=r"item 4 of the data set.*disk on fire"):
        open_images(Items(make))


def test_an_empty_data_set_is_refused():
    with pytest.raises(AcclimateError, match="at least one item"):
        open_images(Items(lambda i: FLOATS[i], count=0))


def test_a_loader_gives_its_data_set_in_order():
    dataset = TensorDataset(FLOATS, torch.tensor(LABELS))
    source = open_images(DataLoader(dataset, batch_size=4, shuffle=True, drop_last=True))
    assert torch.equal(everything(source), FLOATS)
    assert labels_of(source) == LABELS


def test_a_loaders_own_collate_function_is_used():
    def collate(items: list[Any]) -> dict[str, Any]:
        return {
            "image": torch.stack([item["raw"] * 2 for item in items]),
            "label": torch.tensor([item["y"] for item in items]),
        }

    dataset = Items(lambda i: {"raw": FLOATS[i], "y": LABELS[i]})
    source = open_images(DataLoader(dataset, batch_size=4, collate_fn=collate))
    assert torch.equal(everything(source), FLOATS * 2)
    assert labels_of(source) == LABELS


def test_a_loaders_own_sampler_is_ignored_out_loud():
    dataset = TensorDataset(FLOATS)
    with pytest.warns(AcclimateWarning, match="WeightedRandomSampler is not used") as caught:
        source = open_images(DataLoader(dataset, sampler=WeightedRandomSampler([1.0] * 6, 100)))
    assert len(caught) == 1
    assert torch.equal(everything(source), FLOATS)


@pytest.mark.parametrize(
    "stream",
    [
        lambda: Flow(),
        lambda: DataLoader(Flow(), batch_size=4),
        lambda: iter(zip(FLOATS, LABELS, strict=True)),
        lambda: ((FLOATS[i : i + 4], LABELS[i : i + 4]) for i in (0, 4)),
        lambda: ({"image": FLOATS[i : i + 4], "label": LABELS[i : i + 4]} for i in (0, 4)),
    ],
)
def test_streams_of_items_or_batches_are_read_into_memory_with_a_warning(stream):
    with pytest.warns(AcclimateWarning, match="read into memory") as caught:
        source = open_images(stream())
    assert len(caught) == 1
    assert torch.equal(everything(source), FLOATS)
    assert labels_of(source) == LABELS


@pytest.mark.parametrize("items", [list(FLOATS), list(FLOATS.split(4)), tuple(FLOATS.numpy())])
def test_lists_of_items_or_batches_need_no_warning(items):
    source = open_images(items)
    assert torch.equal(everything(source), FLOATS)
    assert source.labels is None


def test_a_list_of_images():
    images = [Image.new("RGB", (9, 9 + i), (i, i, i)) for i in range(3)]
    assert everything(open_images(images, preprocessing=SMALL))[:, 0, 0, 0].tolist() == [0, 1, 2]


def test_an_endless_stream_stops_at_the_memory_it_may_use():
    def forever() -> Any:
        while True:
            yield FLOATS[0]

    with (
        pytest.warns(AcclimateWarning),
        pytest.raises(AcclimateError, match="does not fit in 10,000 bytes"),
    ):
        open_images(forever(), cache=10_000)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "nothing to read"),
        ([FLOATS[0], FLOATS[0, :1]], "image 1 of the stream"),
        ([FLOATS[0], FLOATS[0] / 0], "image 1 of the stream.*NaN"),
        ([(FLOATS, [1, 2])], "as many labels as images"),
        (["a.png", FLOATS[0]], "a list of paths, got one with a Tensor"),
    ],
)
def test_broken_streams_are_refused(items, message):
    with pytest.raises(AcclimateError, match=message):
        open_images(items)


@pytest.mark.parametrize("thing", [None, 7, {"images": FLOATS}, b"bytes", object()])
def test_anything_else_is_refused_with_what_is_taken(thing):
    with pytest.raises(AcclimateError, match=r"expected a folder.*got"):
        open_images(thing)


def test_a_negative_cache_is_refused():
    with pytest.raises(AcclimateError, match="cache >= 0"):
        open_images(TensorDataset(FLOATS), cache=-1)
