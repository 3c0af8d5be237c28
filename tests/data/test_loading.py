"""Batches of model input, read ahead, in an order that needs no saving."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.data import (
    ImageSource,
    Preprocessing,
    batch_count,
    batches,
    epoch_order,
    open_images,
)
from acclimate.errors import AcclimateError


def numbered(n: int) -> ImageSource:
    """Images whose pixels are their own numbers."""
    return open_images(torch.arange(n, dtype=torch.float32)[:, None, None, None] / 100)


class Counting(ImageSource):
    """A source that counts what is read, and may fail at an image."""

    def __init__(self, n: int, *, broken: int | None = None) -> None:
        super().__init__(names=[str(i) for i in range(n)])
        self.broken, self.reads = broken, 0

    def read(self, indices: torch.Tensor) -> torch.Tensor:
        self.reads += 1
        if self.broken in indices.tolist():
            raise AcclimateError(f"image {self.broken} is broken")
        return torch.zeros(len(indices), 1, 1, 1)

    def fingerprint(self) -> str:
        return ""


def reading_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "acclimate-read-ahead"]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 40), st.integers(1, 12), st.integers(0, 3), st.integers(0, 5))
def test_every_image_once_in_order_and_never_alone(n, batch_size, prefetch, start):
    source = numbered(40)
    order = epoch_order(40, seed=n, epoch=0)[:n]
    found = list(batches(source, batch_size=batch_size, order=order, prefetch=prefetch))
    assert len(found) == batch_count(n, batch_size)
    if found:
        assert torch.equal(torch.cat([batch.indices for batch in found]), order)
    sizes = [len(batch.indices) for batch in found]
    assert all(size == batch_size for size in sizes[:-1])
    if len(found) > 1 and batch_size > 1:
        assert 2 <= sizes[-1] <= batch_size + 1
    for batch in found:
        assert torch.equal(batch.images.flatten(), source.read(batch.indices).flatten())
    resumed = list(batches(source, batch_size=batch_size, order=order, start=start))
    assert [b.indices.tolist() for b in resumed] == [b.indices.tolist() for b in found[start:]]


@pytest.mark.parametrize(
    ("n", "batch_size", "sizes"),
    [
        (8, 4, [4, 4]),
        (9, 4, [4, 5]),
        (10, 4, [4, 4, 2]),
        (1, 4, [1]),
        (3, 1, [1, 1, 1]),
        (5, 100, [5]),
    ],
)
def test_a_single_image_left_over_joins_the_batch_before(n, batch_size, sizes):
    found = [len(batch.images) for batch in batches(numbered(n), batch_size=batch_size)]
    assert found == sizes
    assert batch_count(n, batch_size) == len(sizes)


def test_bytes_are_normalised():
    wanted = Preprocessing(size=(4, 4))
    images = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    (batch,) = batches(open_images(images, preprocessing=wanted), batch_size=8)
    assert batch.images.dtype == torch.float32
    assert torch.equal(batch.images, wanted.normalize(images))
    assert batch.indices.dtype == torch.int64


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_an_error_while_reading_reaches_the_consumer_after_the_sound_batches(prefetch):
    found = batches(Counting(12, broken=7), batch_size=3, prefetch=prefetch)
    assert [next(found).indices.tolist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(AcclimateError, match="image 7 is broken"):
        next(found)
    assert not reading_threads()


@pytest.mark.parametrize("prefetch", [1, 3])
def test_stopping_early_stops_the_thread(prefetch):
    source = Counting(1000)
    found = batches(source, batch_size=2, prefetch=prefetch)
    for _ in range(3):
        next(found)
    found.close()
    assert not reading_threads()
    assert source.reads <= 3 + prefetch + 2


def test_a_failing_consumer_stops_the_thread():
    def consume() -> None:
        for _ in batches(Counting(1000), batch_size=2):
            raise RuntimeError("training went wrong")

    with pytest.raises(RuntimeError, match="training went wrong"):
        consume()
    assert not reading_threads()


def test_reading_runs_ahead_but_not_away():
    source = Counting(1000)
    found = batches(source, batch_size=2, prefetch=2)
    next(found)
    deadline = time.monotonic() + 10
    while source.reads < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert source.reads == 4  # one yielded, two waiting, one held by the thread
    found.close()


def test_nothing_is_read_before_the_first_batch_is_asked_for():
    source = Counting(10)
    batches(source, batch_size=2)
    assert source.reads == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": 2, "start": -1},
        {"batch_size": 2, "prefetch": -1},
        {"batch_size": 2, "order": torch.tensor([0, 10])},
        {"batch_size": 2, "order": torch.tensor([-1])},
    ],
)
def test_nonsense_is_refused_at_once(wrong):
    with pytest.raises(AcclimateError, match="expected"):
        batches(Counting(10), **wrong)


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(-5, 2**70), st.integers(0, 10**6))
def test_an_epochs_order_is_a_permutation_that_seed_and_epoch_decide(n, seed, epoch):
    order = epoch_order(n, seed=seed, epoch=epoch)
    assert sorted(order.tolist()) == list(range(n))
    torch.manual_seed(0)  # the global generator has no say
    assert torch.equal(order, epoch_order(n, seed=seed, epoch=epoch))


def test_orders_differ_by_seed_and_by_epoch():
    orders = {
        tuple(epoch_order(50, seed=seed, epoch=epoch).tolist())
        for seed in range(4)
        for epoch in range(4)
    }
    assert len(orders) == 16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_batches_land_on_the_device():
    wanted = Preprocessing(size=(4, 4))
    images = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    source = open_images(images, preprocessing=wanted)
    found = list(batches(source, batch_size=2, device="cuda"))
    assert all(batch.images.is_cuda for batch in found)
    together = torch.cat([batch.images.cpu() for batch in found])
    torch.testing.assert_close(together, wanted.normalize(images))
