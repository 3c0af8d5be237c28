"""Single requests are answered together, in order, within limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
import torch

from acclimate.serve.batching import Batcher, ClosedError, FullError, Request


def one(value: float, count: int = 1) -> torch.Tensor:
    return torch.full((count, 1), value)


class Held:
    """Answers with the value of each request, once it may; remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.may = threading.Event()

    def __call__(self, requests: Sequence[Request[float]]) -> list[float]:
        assert self.may.wait(30)
        self.batches.append(sum(len(request.images) for request in requests))
        return [float(request.images[0, 0]) for request in requests]


def test_each_request_gets_its_own_answer_and_those_that_wait_share_a_batch() -> None:
    answer = Held()
    batcher = Batcher(answer, batch_size=8, wait_ms=0)
    futures = [batcher.submit(one(n)) for n in range(20)]
    answer.may.set()
    assert [future.result(30) for future in futures] == list(range(20))
    batcher.close()
    assert sum(answer.batches) == 20
    assert max(answer.batches) == 8


def test_a_batch_waits_no_longer_than_its_deadline() -> None:
    answer = Held()
    answer.may.set()
    batcher = Batcher(answer, batch_size=1000, wait_ms=50)
    began = time.monotonic()
    assert batcher.submit(one(1)).result(30) == 1
    assert 0.045 < time.monotonic() - began < 5
    batcher.close()


def test_a_full_batch_does_not_wait() -> None:
    answer = Held()
    answer.may.set()
    batcher = Batcher(answer, batch_size=2, wait_ms=10_000)
    futures = [batcher.submit(one(n)) for n in range(2)]
    assert [future.result(5) for future in futures] == [0, 1]
    batcher.close()


def test_a_request_larger_than_a_batch_is_not_cut() -> None:
    answer = Held()
    answer.may.set()
    batcher = Batcher(answer, batch_size=4, wait_ms=0)
    assert batcher.submit(one(7, 9)).result(30) == 7
    batcher.close()
    assert answer.batches == [9]


def test_more_than_the_queue_holds_is_refused_and_room_comes_back() -> None:
    answer = Held()
    batcher = Batcher(answer, batch_size=2, wait_ms=0, queue=4)
    futures = [batcher.submit(one(0, 2))]
    while batcher.waiting:  # it is at work on the first
        time.sleep(0.001)
    futures += [batcher.submit(one(n, 2)) for n in (1, 2)]
    with pytest.raises(FullError, match="4 images wait, and at most 4 may"):
        batcher.submit(one(3))
    answer.may.set()
    assert [future.result(30) for future in futures] == [0, 1, 2]
    assert batcher.submit(one(4)).result(30) == 4
    batcher.close()


def test_closing_answers_what_waits_and_refuses_the_rest() -> None:
    answer = Held()
    batcher = Batcher(answer, batch_size=2, wait_ms=10_000)
    futures = [batcher.submit(one(n)) for n in range(5)]
    threading.Timer(0.05, answer.may.set).start()
    batcher.close()
    assert [future.result(0) for future in futures] == [0, 1, 2, 3, 4]
    with pytest.raises(ClosedError, match="shutting down"):
        batcher.submit(one(1))


def test_a_failure_is_that_of_its_batch_alone() -> None:
    def answer(requests: Sequence[Request[int]]) -> list[int]:
        if bool(requests[0].images[0, 0] < 0):
            raise ValueError("negative")
        return [1 for _ in requests]

    batcher = Batcher(answer, batch_size=1, wait_ms=0)
    broken, sound = batcher.submit(one(-1)), batcher.submit(one(1))
    with pytest.raises(ValueError, match="negative"):
        broken.result(30)
    assert sound.result(30) == 1
    batcher.close()


def test_requests_that_were_given_up_are_not_answered() -> None:
    answer = Held()
    batcher = Batcher(answer, batch_size=1, wait_ms=0)
    first = batcher.submit(one(0))
    while batcher.waiting:
        time.sleep(0.001)
    given_up, last = batcher.submit(one(1)), batcher.submit(one(2))
    assert given_up.cancel()
    answer.may.set()
    assert (first.result(30), last.result(30)) == (0, 2)
    batcher.close()
    assert answer.batches == [1, 1]
