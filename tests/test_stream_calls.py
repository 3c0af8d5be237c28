"""How a stream may be called, saved, moved and misused."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from acclimate.acceleration import EXACT, Acceleration
from acclimate.errors import AcclimateError
from acclimate.stream import EVENTS, Stream
from nets import CLASSES, bn_net, images, same_tensors

LR = {"optimizer.lr": 0.05}
BATCHES = [images(8, seed=seed) for seed in range(12)]


def run(stream: Stream, batches: list[Tensor]) -> list[Tensor]:
    return [stream(batch) for batch in batches]


@pytest.mark.parametrize("recipe", ["ent", "bn", "cotta", "memo", "lame", "adacontrast"])
def test_an_empty_batch_teaches_nothing(recipe: str) -> None:
    stream = Stream(bn_net(), recipe)
    stream(BATCHES[0])
    before = stream.state_dict()["_extra_state"]
    assert stream(BATCHES[0][:0]).shape == (0, CLASSES)
    assert same_tensors(stream.state_dict()["_extra_state"], before)
    assert stream.events == []


def test_episodes_begin_from_the_state_that_was_loaded() -> None:
    options = {**LR, "epochs": 1}
    taught = Stream(bn_net(seed=1), "ent", options=options, episodic=True)
    stream = Stream(bn_net(), "ent", options=options, episodic=True)
    stream(BATCHES[0])
    stream.load_state_dict(taught.state_dict())
    torch.testing.assert_close(run(stream, BATCHES[:3]), run(taught, BATCHES[:3]))


def test_a_rate_survives_a_stay_in_half_precision() -> None:
    stream = Stream(bn_net(), "ent", options={"optimizer.lr": 2e-8})
    stream.half().float().reset()
    assert stream.learner.states["optimizer"].param_groups[0]["lr"] == 2e-8


@pytest.mark.parametrize("recipe", ["ent", "bn"])
def test_what_is_faster_is_chosen_anew_where_a_stream_moves(recipe: str) -> None:
    stream = Stream(bn_net(), recipe)
    stream.learner.network.accelerate(Acceleration(half=True, fused=True), verified=True)
    stream.double()
    assert stream.learner.network.acceleration == EXACT
    assert stream(BATCHES[0].double()).dtype == torch.float64


@pytest.mark.parametrize("recipe", ["ent", "bn-prior", "rotta", "note", "cotta", "memo"])
def test_a_stream_can_be_saved_as_it_is(recipe: str) -> None:
    stream, file = Stream(bn_net(), recipe), io.BytesIO()
    run(stream, BATCHES[:2])
    torch.save(stream, file)
    file.seek(0)
    other = torch.load(file, weights_only=False)
    torch.testing.assert_close(run(other, BATCHES[2:5]), run(stream, BATCHES[2:5]))


def test_threads_take_turns() -> None:
    stream, alone = (Stream(bn_net(), "ent", options=LR) for _ in range(2))
    with ThreadPoolExecutor(4) as pool:
        logits = list(pool.map(stream, [BATCHES[0]] * 40))
    assert stream.learner.steps == 40
    expected = run(alone, [BATCHES[0]] * 40)
    firsts = sorted(float(each.sum()) for each in logits)
    torch.testing.assert_close(firsts, sorted(float(each.sum()) for each in expected))


@pytest.mark.parametrize("model", ["timm:resnet50", 3])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(AcclimateError, match=r"expected a torch.nn.Module .*models\.load"):
        Stream(model)


@pytest.mark.parametrize(
    ("images", "options", "warned"),
    [(2, {}, True), (15, {}, True), (16, {}, False), (4, {"normalization": "mixture"}, False)],
)
def test_batches_of_few_images_are_warned_of(
    images: int, options: dict[str, Any], warned: bool
) -> None:
    stream = Stream(bn_net(), "ent", options=options)
    with warnings.catch_warnings(record=True) as warned_of:
        warnings.simplefilter("always")
        stream(torch.cat(BATCHES[:2])[:images])
        stream(torch.cat(BATCHES[:2])[:images])
    assert [f"statistics of {images} images" in str(each.message) for each in warned_of] == [
        True
    ] * warned


class Noting(torch.nn.Module):
    """A network whose forward pass lets another thread in."""

    def __init__(self) -> None:
        super().__init__()
        self.net = bn_net()
        self.working = False

    def forward(self, x: Tensor) -> Tensor:
        self.working = True
        time.sleep(0.02)
        logits: Tensor = self.net(x)
        self.working = False
        return logits


@pytest.mark.parametrize(
    "call",
    [
        Stream.reset,
        Stream.state_dict,
        Stream.get_extra_state,
        Stream.pause,
        Stream.resume,
        lambda stream: stream.load_state_dict(stream.state_dict()),
        lambda stream: stream.float(),
    ],
)
def test_what_changes_a_stream_waits_for_the_batch_at_work(call: Callable[[Stream], Any]) -> None:
    stream = Stream(Noting(), "ent", options=LR, guard="off")
    stream(BATCHES[0])
    with ThreadPoolExecutor(1) as pool:
        forward = pool.submit(stream, BATCHES[1])
        while not stream.model.working:
            time.sleep(0.001)
        call(stream)
        assert not stream.model.working
        forward.result()
    assert bool(stream(BATCHES[2]).isfinite().all())


def test_a_reset_beside_forward_passes() -> None:
    stream = Stream(bn_net(), "ent", options=LR, guard="observe")
    with ThreadPoolExecutor(2) as pool:
        works = [pool.submit(run, stream, BATCHES * 3) for _ in range(2)]
        while not all(work.done() for work in works):
            stream.reset()
        for work in works:
            work.result()
    stream.reset()
    fresh = Stream(bn_net(), "ent", options=LR, guard="observe")
    assert torch.equal(stream(BATCHES[0]), fresh(BATCHES[0]))


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_events_are_bounded_and_counted() -> None:
    stream = Stream(bn_net(), "ent")
    broken = torch.full_like(BATCHES[0], torch.nan)
    run(stream, [broken] * (EVENTS + 5))
    assert len(stream.events) == EVENTS
    assert stream.event_count == EVENTS + 5
    assert f"{EVENTS + 5:,} events" in repr(stream)
    stream.reset()
    assert (stream.events, stream.event_count) == ([], 0)


@pytest.mark.parametrize("value", [None, "x", torch.zeros(0), torch.tensor(float("nan"))])
@pytest.mark.parametrize("key", ["recipe", "rollbacks", "watch/steps"])
def test_a_damaged_state_is_refused(key: str, value: object) -> None:
    state = Stream(bn_net(), "ent").state_dict()
    assert key in state["_extra_state"]
    state["_extra_state"][key] = value
    with pytest.raises(AcclimateError, match="expected what state_dict of a stream held"):
        Stream(bn_net(), "ent").load_state_dict(state)


@pytest.mark.parametrize("change", [lambda t: t[:0], lambda t: t[None], lambda t: t + 1])
@pytest.mark.parametrize(
    "key",
    ["watch/probability", "learner/optimizer/0.momentum_buffer", "comparison/adapted.entropy"],
)
def test_a_state_of_other_contents_is_refused_when_loaded_not_in_a_later_batch(
    key: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    stream = Stream(bn_net(), "ent")
    run(stream, BATCHES)
    state = stream.state_dict()
    state["_extra_state"][key] = change(state["_extra_state"][key])
    with pytest.raises(AcclimateError, match="its contents are not those that were saved"):
        Stream(bn_net(), "ent").load_state_dict(state)


def test_a_state_of_a_version_without_a_checksum_is_read() -> None:
    state = Stream(bn_net(), "ent").state_dict()
    del state["_extra_state"]["sha256"]
    Stream(bn_net(), "ent").load_state_dict(state)


@pytest.mark.parametrize("extra", [None, 3, [], "x"])
def test_what_is_no_state_is_refused(extra: object) -> None:
    state = {**Stream(bn_net(), "ent").state_dict(), "_extra_state": extra}
    with pytest.raises(AcclimateError, match="expected what state_dict of a stream held"):
        Stream(bn_net(), "ent").load_state_dict(state)
