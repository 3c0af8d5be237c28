"""The guard of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from acclimate.data.digits import digits
from acclimate.errors import AcclimateWarning
from acclimate.guard.containment import FIRST
from acclimate.guard.evidence import PASSES
from acclimate.guard.guard import Guard
from acclimate.models import load
from acclimate.stream import PATIENCE, Stream
from nets import bn_net, images, same_tensors, snapshot

LR = {"optimizer.lr": 0.05}
ADAM = {"optimizer": "adam", "optimizer.lr": 1e-3}
BATCHES = [images(8, seed=seed) for seed in range(12)]


def run(stream: Stream, batches: list[Tensor]) -> list[Tensor]:
    return [stream(batch) for batch in batches]


def harmful(**options: Any) -> dict[str, Any]:
    return {"optimizer.lr": 20.0, **options}


def test_the_guard_rolls_back_and_in_the_end_stops_learning() -> None:
    stream = Stream(bn_net(), "ent", options=harmful(), guard=Guard(check_every=2))
    with pytest.warns(AcclimateWarning, match=r"went back to step 0"):
        run(stream, BATCHES[:2])
    assert same_tensors(snapshot(stream.model), snapshot(bn_net()))
    assert stream.learns
    with pytest.warns(AcclimateWarning, match="went back to step 0"):
        run(stream, BATCHES[: 2 * (PATIENCE - 1)])
    assert not stream.learns
    assert [e.step for e in stream.events] == [2, 2, 2]
    assert stream.events[-1].action == "went back to step 0 and stopped learning"
    assert same_tensors(snapshot(stream.model), snapshot(bn_net()))
    stream.resume()
    assert stream.learns


def test_patience_is_remembered_in_the_state() -> None:
    first, second = (
        Stream(bn_net(), "ent", options=harmful(), guard=Guard(check_every=2)) for _ in range(2)
    )
    with pytest.warns(AcclimateWarning, match="went back to step 0"):
        run(first, BATCHES[: 2 * (PATIENCE - 1)])
    assert len(first.events) == PATIENCE - 1
    second.load_state_dict(first.state_dict())
    with pytest.warns(AcclimateWarning, match="stopped learning"):
        run(second, BATCHES[:2])


def test_observe_only_records() -> None:
    watched = Stream(
        bn_net(), "ent", options=harmful(), guard=Guard(action="observe", check_every=2)
    )
    alone = Stream(bn_net(), "ent", options=harmful(), guard="off")
    for x in BATCHES[:6]:
        assert torch.equal(watched(x), alone(x))
    assert [e.action for e in watched.events] == ["recorded"] * 3
    assert alone.events == []


def test_stop_keeps_the_state_and_learns_no_more() -> None:
    stream = Stream(bn_net(), "ent", options=harmful(), guard=Guard(action="stop", check_every=2))
    with pytest.warns(AcclimateWarning, match="stopped learning"):
        run(stream, BATCHES[:2])
    assert not stream.learns
    assert not same_tensors(snapshot(stream.model), snapshot(bn_net()))


def test_a_sane_stream_is_left_alone() -> None:
    guarded = Stream(bn_net(), "ent", options={"optimizer.lr": 1e-3}, guard=Guard(check_every=4))
    alone = Stream(bn_net(), "ent", options={"optimizer.lr": 1e-3}, guard="off")
    for x in BATCHES[:8]:
        assert torch.equal(guarded(x), alone(x))
    assert guarded.events == []


CLEAN, LABELS = digits("held-out")
FOGGY, _ = digits("held-out", shifted=True)


def test_a_check_costs_a_source_pass_and_what_it_takes_to_compare_both_models() -> None:
    stream = Stream(load("acclimate:digits"), "ent", guard=Guard(check_every=4))
    counts = [0]
    for part in np.split(FOGGY[:640], 10):
        stream(part)
        counts.append(stream.learner.forwards)
    comparison, source, sample = 2 * PASSES, 1, 2  # two halves: together a pass over the batch
    spent = torch.tensor(counts).diff().tolist()
    first = 1 + comparison + sample
    assert spent[:FIRST] == [first, first, first, first + source]
    assert spent[FIRST:] == [1, 1 + sample, 1, 1 + source + comparison, 1 + sample, 1]


@pytest.mark.parametrize("recipe", ["bn", "ent"])
def test_where_adapting_does_harm_the_unadapted_model_predicts(recipe: str) -> None:
    net, ones = load("acclimate:digits"), CLEAN[LABELS == 1]
    stream = Stream(net, recipe)
    with pytest.warns(AcclimateWarning, match="does harm: estimated error .* unadapted model pre"):
        predicted = [stream(part).argmax(dim=1) for part in (ones[:50], ones[50:])]
    assert stream.contained
    assert float((torch.cat(predicted) == 1).float().mean()) > 0.95
    assert stream.learner.steps == 0
    assert same_tensors(snapshot(stream.model), snapshot(load("acclimate:digits").model))


def test_images_sorted_by_class_are_noticed_in_thin_fog_too() -> None:
    order = np.argsort(LABELS, kind="stable")[:800]
    images = (0.7 * CLEAN[order] + 0.3 * FOGGY[order]).astype(np.uint8)
    labels = torch.from_numpy(LABELS[order])

    def right(stream: Stream) -> float:
        logits = torch.cat([stream(part) for part in np.split(images, 16)])
        return float((logits.argmax(dim=1) == labels).float().mean())

    unguarded, stream = (Stream(load("acclimate:digits"), guard=g) for g in ("off", "rollback"))
    with pytest.warns(AcclimateWarning, match="unadapted model predicts"):
        assert right(stream) > 0.95
    assert right(unguarded) < 0.4
    assert stream.contained


def test_it_adapts_again_once_that_helps() -> None:
    stream = Stream(load("acclimate:digits"), "ent", guard=Guard(check_every=2))
    with pytest.warns(AcclimateWarning, match="unadapted model predicts"):
        stream(CLEAN[LABELS == 1])
    with pytest.warns(AcclimateWarning, match="adapts again"):
        logits = [stream(part) for part in np.split(FOGGY[:600], 12)]
    assert not stream.contained
    assert stream.learner.steps > 0
    right = logits[-1].argmax(dim=1) == torch.from_numpy(LABELS[550:600])
    assert float(right.float().mean()) > 0.8  # unadapted 0.37


def test_probabilities_are_calibrated_and_the_error_is_estimated() -> None:
    stream = Stream(load("acclimate:digits"), "ent")
    assert stream.estimated_error is None
    with torch.no_grad():
        probabilities = torch.cat([stream.probabilities(part) for part in np.split(FOGGY, 10)])
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(len(FOGGY)))
    assert stream.estimated_error is not None
    error = float((probabilities.argmax(dim=1) != torch.from_numpy(LABELS)).float().mean())
    assert abs(float(probabilities.amax(dim=1).mean()) - (1 - error)) < 0.1


def test_which_model_predicts_and_why_is_part_of_the_state() -> None:
    first, second = (Stream(load("acclimate:digits"), "ent") for _ in range(2))
    with pytest.warns(AcclimateWarning, match="unadapted model predicts"):
        first(CLEAN[LABELS == 1])
    second.load_state_dict(first.state_dict())
    assert second.contained
    assert second.estimated_error == first.estimated_error


@pytest.mark.parametrize("options", [{}, {"normalization": "running"}, ADAM])
def test_a_batch_that_overflows_does_not_poison_the_stream_for_good(
    options: dict[str, Any],
) -> None:
    settings = {"optimizer.lr": 1e-3, **options}
    stream = Stream(bn_net(), "ent", options=settings, guard=Guard(check_every=2))
    run(stream, BATCHES[:4])
    with pytest.warns(AcclimateWarning, match="not finite; went back to step 2"):
        logits = stream(overflowing(BATCHES[4]))  # at once, not at the next check
    assert torch.isfinite(logits[1:]).all()  # the source model predicts the sound images
    assert all(torch.isfinite(a).all() for a in run(stream, BATCHES[5:]))
    assert stream.learns
    assert stream.learner.steps == 2 + len(BATCHES[5:])


def test_logits_that_are_not_finite_after_the_last_step_of_an_episode_are_not_returned() -> None:
    options = {"optimizer.lr": 1e30, "epochs": 3, "objective.augmentations": 4}
    stream = Stream(bn_net(), "memo", options=options)
    assert all(bool(torch.isfinite(each).all()) for each in run(stream, BATCHES[:2]))


@pytest.mark.parametrize("recipe", ["ent", "rpl", "rotta", "cotta"])
def test_nothing_is_learnt_from_broken_images_and_nothing_undone(recipe: str) -> None:
    stream, other = (Stream(bn_net(), recipe) for _ in range(2))
    run(stream, BATCHES[:4])
    run(other, BATCHES[:4])
    for number in range(PATIENCE + 1):
        with pytest.warns(AcclimateWarning, match="images are not finite; learnt nothing"):
            assert torch.isfinite(stream(broken())[1:]).all()
        assert len(stream.events) == number + 1
    assert stream.learns
    assert stream.learner.steps == 4
    torch.testing.assert_close(run(stream, BATCHES[4:]), run(other, BATCHES[4:]))


def overflowing(x: Tensor) -> Tensor:
    x = x.clone()
    x[0] = 3e38
    return x


def broken() -> Tensor:
    x = BATCHES[0].clone()
    x[0] = float("nan")
    return x


def test_who_only_stops_stops_with_parameters_that_are_finite() -> None:
    stream = Stream(bn_net(), "ent", options=LR, guard="stop")
    with pytest.warns(AcclimateWarning, match="went back to step 0 and stopped learning"):
        stream(overflowing(BATCHES[0]))
    assert not stream.learns
    assert same_tensors(snapshot(stream.model), snapshot(bn_net()))
    assert bool(torch.isfinite(stream(BATCHES[1])).all())


@pytest.mark.parametrize("recipe", ["bn", "bn-prior", "ent"])
def test_a_broken_image_spoils_no_other_prediction_where_nothing_is_learnt(recipe: str) -> None:
    stream = Stream(bn_net(), recipe)
    stream.pause()
    torch.testing.assert_close(stream(broken())[1:], bn_net()(broken())[1:].detach())
    stream.resume()
    if recipe != "ent":
        torch.testing.assert_close(stream(broken())[1:], bn_net()(broken())[1:].detach())
    assert stream.events == []


def test_the_state_to_go_back_to_survives_saving() -> None:
    first, second = (
        Stream(bn_net(), "ent", options=LR, guard=Guard(check_every=2)) for _ in range(2)
    )
    run(first, BATCHES[:8])
    second.load_state_dict(first.state_dict())
    for stream in (first, second):
        kept = (stream._watch.older, stream._watch.newer)
        assert [int(each["learner/steps"]) for each in kept] == [6, 8]
