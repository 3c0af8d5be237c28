"""Images that stay on the device: the same batches, and nothing is read twice."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.data import ImageSource, Preprocessing, batches, epoch_order
from acclimate.data.loading import Resident
from acclimate.errors import AcclimateError

N = 20
WANTED = Preprocessing(size=(2, 3))
BYTES = torch.randint(
    0, 256, (N, 3, 2, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
IMAGES = {"uint8": BYTES, "float32": BYTES / 100}


class Counting(ImageSource):
    """Images of either kind that note which of them are read."""

    def __init__(self, kind: str = "uint8") -> None:
        known = WANTED if kind == "uint8" else None
        super().__init__(names=[str(i) for i in range(N)], preprocessing=known)
        self.images = IMAGES[kind]
        self.numbers: list[int] = []
        self.threads: set[str] = set()

    def read(self, indices: torch.Tensor) -> torch.Tensor:
        self.numbers += indices.tolist()
        self.threads.add(threading.current_thread().name)
        return self.images[indices]

    def fingerprint(self) -> str:
        return ""


def roomy(device: str = "cpu") -> Resident:
    return Resident(N, device=device, room=10**6)


def second_half(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.tensor_split(2)[1]


@pytest.mark.parametrize("kind", IMAGES)
@settings(max_examples=30, deadline=None)
@given(
    batch_size=st.integers(1, 25),
    starts=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    room=st.sampled_from([0, 359, 360, 1439, 1440, 10**6]),  # 18 or 72 bytes an image
    prefetch=st.integers(0, 2),
    shared=st.booleans(),
)
def test_batches_are_the_same_with_and_without(kind, batch_size, starts, room, prefetch, shared):
    resident = Resident(N, device="cpu", room=room)
    for epoch, start in enumerate(starts):
        passing = {
            "batch_size": batch_size,
            "order": epoch_order(N, seed=0, epoch=epoch),
            "start": start,
            "prefetch": prefetch,
            "part": second_half if shared else None,
        }
        plain = list(batches(Counting(kind), **passing))
        kept = list(batches(Counting(kind), **passing, resident=resident))
        assert len(plain) == len(kept)
        for one, other in zip(plain, kept, strict=True):
            assert one.images.dtype == other.images.dtype == torch.float32
            assert torch.equal(one.images, other.images)
            assert torch.equal(one.indices, other.indices)
            assert torch.equal(other.indices, other.rows)


@pytest.mark.parametrize("kind", IMAGES)
def test_a_second_pass_reads_nothing_and_needs_no_thread(kind):
    source, resident = Counting(kind), roomy()
    list(batches(source, batch_size=6, resident=resident))
    assert source.threads == {"acclimate-read-ahead"}
    before = set(threading.enumerate())
    order = epoch_order(N, seed=0, epoch=1)
    for _ in batches(source, batch_size=6, order=order, resident=resident):
        assert set(threading.enumerate()) == before
    assert sorted(source.numbers) == list(range(N))


def test_what_a_resumed_epoch_left_out_is_read_when_it_comes_up():
    source, resident = Counting(), roomy()
    order = epoch_order(N, seed=0, epoch=0)
    list(batches(source, batch_size=5, order=order, start=2, resident=resident))
    assert source.numbers == order[10:].tolist()
    source.numbers.clear()
    later = epoch_order(N, seed=0, epoch=1)
    list(batches(source, batch_size=5, order=later, resident=resident))
    assert sorted(source.numbers) == sorted(order[:10].tolist())


def test_what_was_read_ahead_but_never_yielded_is_not_taken_for_kept():
    source, resident = Counting(), roomy()
    found = batches(source, batch_size=5, prefetch=2, resident=resident)
    next(found)
    found.close()
    assert resident.missing(torch.arange(N)).tolist() == list(range(5, N))


def test_of_a_shared_batch_only_its_own_part_is_read():
    source, resident = Counting(), roomy()
    list(batches(source, batch_size=6, part=second_half, resident=resident))
    assert source.numbers == [3, 4, 5, 9, 10, 11, 15, 16, 17, 19]
    source.numbers.clear()
    list(batches(source, batch_size=6, part=second_half, resident=resident))
    assert source.numbers == []


def test_images_that_come_twice_in_a_pass():
    source, resident = Counting(), roomy()
    order = torch.tensor([4, 4, 7, 4, 7, 1])
    found = list(batches(source, batch_size=3, order=order, prefetch=0, resident=resident))
    images = torch.cat([batch.images for batch in found])
    assert torch.equal(images, WANTED.normalize(BYTES[order]))
    assert source.numbers == [4, 4, 7, 1]


@pytest.mark.parametrize(
    "laid",
    [
        BYTES.contiguous(memory_format=torch.channels_last),
        BYTES[:, :1].clone().as_strided((N, 1, 2, 3), (6, 1, 3, 1)),
        BYTES[:, :1].clone().as_strided((N, 1, 2, 3), (6, 6, 3, 1)),
    ],
    ids=["channels last", "one channel, last", "one channel, first"],
)
def test_images_lie_in_memory_as_they_were_read(laid):
    resident = roomy()
    resident.keep(torch.arange(N), laid)
    found = resident.take(torch.arange(N))
    assert torch.equal(found, laid)
    assert found.stride() == laid.stride()


def test_all_or_nothing_fits():
    source, tight = Counting(), Resident(N, device="cpu", room=N * 18 - 1)
    for _ in range(2):
        list(batches(source, batch_size=6, resident=tight))
    assert len(source.numbers) == 2 * N
    assert len(tight.missing(torch.arange(N))) == N


def test_changing_a_batch_does_not_change_what_is_kept():
    source, resident = Counting("float32"), roomy()
    for _ in range(3):
        for batch in batches(source, batch_size=6, resident=resident):
            assert torch.equal(batch.images, IMAGES["float32"][batch.indices])
            batch.images.zero_()


def test_on_a_cpu_nothing_is_kept_unless_asked():
    source, resident = Counting(), Resident(N, device="cpu")
    for _ in range(2):
        list(batches(source, batch_size=6, resident=resident))
    assert len(source.numbers) == 2 * N


def test_less_than_no_room_is_refused():
    with pytest.raises(AcclimateError, match="room >= 0 bytes, got -1"):
        Resident(N, device="cpu", room=-1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", IMAGES)
def test_on_a_gpu_images_stay_by_themselves(kind):
    source, resident = Counting(kind), Resident(N, device="cuda")
    passes = []
    for epoch in range(2):
        order = epoch_order(N, seed=0, epoch=epoch)
        found = batches(source, batch_size=6, order=order, device="cuda", resident=resident)
        images = torch.cat([batch.images for batch in found])
        assert images.is_cuda
        passes.append(images[order.argsort().cuda()])
    assert torch.equal(*passes)
    assert len(source.numbers) == N
