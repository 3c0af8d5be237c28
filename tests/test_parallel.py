"""Several processes, each with a part of every batch, do what one does with the whole batch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import acclimate
from acclimate import parallel
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.parts.base import PARTS
from acclimate.parts.objectives import Objective
from acclimate.parts.statistics import _statistics_of_all, batch_statistics
from nets import bn_net, gn_net, images
from processes import Failed, in_processes, succeed

SURE = {"filter": "confidence", "filter.threshold": 0.2545}  # about half the images
RATE = {"optimizer.lr": 0.1, "batch_size": 8}

CASES = {
    "bn": ("bn", {}, bn_net),
    "bn-prior": ("bn-prior", {}, bn_net),
    "ent": ("ent", RATE, bn_net),
    "ent, all": ("ent", RATE | {"selector": "all"}, bn_net),
    "ent, source statistics": ("ent", RATE | {"normalization": "source"}, bn_net),
    "ent, running": ("ent", RATE | {"normalization": "running"}, bn_net),
    "ent, adam": ("ent", {"batch_size": 8, "optimizer": "adam", "optimizer.lr": 0.01}, bn_net),
    "rpl": ("rpl", RATE, bn_net),
    "rpl, mixture": ("rpl", RATE | {"normalization": "mixture"}, bn_net),
    "rpl, sure": ("rpl", RATE | SURE, bn_net),
    "rpl, nobody sure": ("rpl", RATE | {"filter": "confidence", "filter.threshold": 1.0}, bn_net),
    "hard": ("hard", RATE, bn_net),
    "hard, moving average": ("hard", RATE | {"teacher": "moving-average"}, bn_net),
    "ent, group norm": ("ent", RATE, gn_net),
    "rpl, group norm, all, sure": ("rpl", RATE | SURE | {"selector": "all"}, gn_net),
}


def steps(case: str, sizes: list[int], share=parallel.share) -> dict[str, Tensor]:
    """Some steps, and all that came of them."""
    recipe, options, net = CASES[case]
    learner = Learner(net().double(), get_recipe(recipe, options), seed=0)
    learner.start_epoch()
    pool = learner.statistics.pool()
    found = {}
    for number, size in enumerate(sizes):
        result = learner.step(share(images(size, seed=number).double()))
        found[f"logits {number}"] = parallel.gathered(result.logits)
        if result.loss is not None:
            found[f"loss {number}"] = result.loss
    pool.close()
    for name, (mean, var) in pool.statistics().items():
        found |= {f"mean {name}": mean, f"var {name}": var}
    found["running"] = torch.cat([torch.zeros(1), *learner.statistics.running.values()])
    moved = [(p - learner.source[n]).flatten() for n, p in learner.learning.items()]
    found["moved"] = torch.cat([torch.zeros(1), *moved]).detach()
    return found


def assert_alike(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        # Pooled statistics are sums of float32; everything else is float64 throughout.
        close = 1e-6 if name.startswith(("mean", "var")) else 1e-12
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=close, msg=name)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_step_as_one(case: str) -> None:
    sizes = [8, 7, 5]
    expected = steps(case, sizes)
    learns = get_recipe(CASES[case][0]).learns and case != "rpl, nobody sure"
    assert learns == (float(expected["moved"].abs().max()) > 1e-4)
    for found in succeed(2, steps, case, sizes):
        assert_alike(found, expected)


@pytest.mark.parametrize("case", ["rpl", "ent, running", "hard", "rpl, sure", "rpl, mixture"])
@pytest.mark.parametrize("world", [2, 3])
def test_a_process_without_images_takes_part(case: str, world: int) -> None:
    sizes = [7, 2, 1 if world == 2 and "mixture" in case else 2, 4]
    expected = steps(case, sizes)
    for found in succeed(world, steps, case, sizes):
        assert_alike(found, expected)


def lopsided(values: Tensor) -> Tensor:
    """Not how ``share`` deals: users of ``Learner.step`` bring what they have."""
    return values[:1] if parallel.rank() == 0 else values[1:]


def test_any_split_of_a_batch_gives_the_same() -> None:
    expected = steps("rpl", [8, 6])
    for found in succeed(2, steps, "rpl", [8, 6], lopsided):
        assert_alike(found, expected)


def statistics_and_gradient(dtype: torch.dtype) -> tuple[Tensor, ...]:
    whole = (3e3 + images(5)).to(dtype)  # a sum of squares in float32 would lose the variance
    x = parallel.share(whole).requires_grad_()
    mean, var = _statistics_of_all(x) if parallel.active() else batch_statistics(x)
    # Of the sum over processes of losses that differ from process to process.
    wanted = torch.linspace(1, 2, len(whole), dtype=dtype)
    weight = parallel.share(wanted).sum()
    (weight * (mean.square() + var.sin()).sum()).backward()
    return mean, var, parallel.gathered(x.grad)


@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float64, 1e-9), (torch.float32, 1e-4), (torch.bfloat16, 2e-2)]
)
def test_statistics_and_their_gradients_are_those_of_the_batch(dtype, close) -> None:
    if dtype == torch.bfloat16:  # the reference is the float32 one on the same rounded images
        x = (3e3 + images(5)).to(dtype).float()
        expected = [t.to(dtype) for t in batch_statistics(x)]
    else:
        expected = statistics_and_gradient(dtype)
    for found in succeed(2, statistics_and_gradient, dtype):
        for here, there in zip(found, expected, strict=False):
            assert here.dtype == dtype
            torch.testing.assert_close(here, there.detach(), rtol=close, atol=close)


def primitives() -> dict[str, object]:
    rank = parallel.rank()
    ragged = torch.full((rank, 2), float(rank))
    sums = [torch.tensor([1.0 + rank]), torch.tensor(rank), torch.ones(2, 2) * rank]
    parallel.sum_in_place(sums)
    with parallel.alone():
        by_itself = parallel.world(), parallel.is_main(), len(parallel.gathered(ragged))
    return {
        "gathered": parallel.gathered(ragged).tolist(),
        "dealt": parallel.gathered(parallel.share(torch.arange(4)), total=4).tolist(),
        "share": len(parallel.share(torch.arange(2))),
        "sums": [t.tolist() for t in sums],
        "main": parallel.on_main(lambda: parallel.rank() + 7),
        "alone": by_itself,
    }


def test_primitives() -> None:
    found = succeed(3, primitives)
    for rank, answer in enumerate(found):
        assert answer == {
            "gathered": [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]],
            "dealt": [0, 1, 2, 3],
            "share": [1, 1, 0][rank],
            "sums": [[6.0], 3, [[3.0, 3.0], [3.0, 3.0]]],
            "main": 7,
            "alone": (1, True, rank),
        }


def small_buckets() -> list[float]:
    parallel.BUCKET = 3
    values = [torch.ones(2), torch.ones(2), torch.ones(5), torch.ones(1, dtype=torch.float64)]
    parallel.sum_in_place(values)
    return [float(t.min()) for t in values] + [float(t.max()) for t in values]


def test_many_values_are_summed_in_buckets() -> None:
    assert succeed(2, small_buckets) == [[2.0] * 8] * 2


def calls_in_a_step(case: str) -> int:
    recipe, options, net = CASES[case]
    learner = Learner(net().double(), get_recipe(recipe, options))
    calls = 0
    real = dist.all_reduce

    def counted(*args, **more):
        nonlocal calls
        calls += 1
        return real(*args, **more)

    dist.all_reduce = counted
    mine = parallel.share(images(6).double())
    learner.set_total(mine, 6)
    learner.step(mine)
    return calls


@pytest.mark.parametrize(
    ("case", "calls"),
    [
        ("ent, group norm", 1),  # the gradients, and the loss with them
        ("ent, source statistics", 1),
        ("ent", 4),  # two layers forth, one back (none learns before the first), the gradients
        ("ent, all", 5),
        ("rpl, sure", 5),  # and how many images count
        ("bn", 2),
    ],
)
def test_how_often_the_processes_talk_in_a_step(case: str, calls: int) -> None:
    assert succeed(2, calls_in_a_step, case) == [calls] * 2


def test_without_a_group_nobody_is_called(monkeypatch) -> None:
    def called(*args, **more):
        raise AssertionError("a call to torch.distributed")

    for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast_object_list",
                 "get_rank", "get_world_size"):  # fmt: skip
        monkeypatch.setattr(dist, name, called)
    steps("rpl, sure", [4, 3])
    result = acclimate.adapt(bn_net(), images(20), "ent", progress=False, batch_size=8)
    assert len(result.predictions) == 20


def refused(recipe: str, options: dict, wrap: bool) -> None:
    PARTS["objective"].register("scalar")(Scalar)  # in this process alone
    net = gn_net()
    if wrap:
        net = nn.parallel.DistributedDataParallel(net)
    Learner(net, get_recipe(recipe, options)).step(images(4))


@dataclass(frozen=True, kw_only=True)
class Scalar(Objective):
    def loss(self, state, step) -> Tensor:
        return step.student.logits.mean()


@pytest.mark.parametrize(
    ("recipe", "options", "wrap", "words"),
    [
        ("dino", {}, False, "draws views of each image"),
        ("ent", {"objective": Scalar()}, False, "return one value per image"),
        ("ent", {}, True, "pass model.module"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(recipe, options, wrap, words) -> None:
    for answer in in_processes(2, refused, recipe, options, wrap):
        assert isinstance(answer, Failed)
        assert str(answer).startswith("AcclimateError")
        assert words in str(answer)


def streamed(rate: float) -> tuple[list[Tensor], list[str]]:
    guard = acclimate.Guard(action="observe", check_every=2, max_drift=1e9)
    options = RATE | {"optimizer.lr": rate}
    stream = acclimate.Stream(bn_net().double(), "ent", options=options, guard=guard)
    batches = [images(40, seed=n).double() for n in range(6)]
    answers = [parallel.gathered(stream(parallel.share(batch))) for batch in batches]
    return answers, [f"{event.step} {event.trouble}" for event in stream.events]


def test_a_stream_predicts_and_decides_as_one() -> None:
    answers, events = streamed(30.0)
    assert "collapsing" in events[0]
    for found, seen in succeed(2, streamed, 30.0):
        assert seen == events
        for here, there in zip(found, answers, strict=True):
            torch.testing.assert_close(here, there, rtol=1e-6, atol=1e-6)
