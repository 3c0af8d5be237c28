"""What only a GPU can show: kernels against their plain form, recordings against the steps."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from acclimate.acceleration import Acceleration, GraphedWork, plain_kernels
from acclimate.acceleration.plain_kernels import Activation
from acclimate.errors import AcclimateWarning
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from nets import Residual

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPES = [(2, 3, 5, 5), (16, 64, 14, 14), (4, 24, 7, 9), (2, 200, 5, 5), (3, 512, 7, 7)]
POOL = {"window": 3, "stride": 2, "padding": 1}


def pictures(shape: tuple[int, ...], dtype: torch.dtype, *, middle: float = 0.0) -> Tensor:
    made = torch.randn(shape, device="cuda") * 2 + middle
    return made.to(dtype).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("activation", ["none", "relu", "relu6", "silu"])
def test_kernels_give_what_the_plain_form_gives(
    shape: tuple[int, ...], dtype: torch.dtype, adds: bool, two: bool, activation: Activation
) -> None:
    from acclimate.acceleration import triton_kernels

    torch.manual_seed(0)
    channels = shape[1]
    x = pictures(shape, dtype, middle=30)
    weight, bias = torch.rand(channels, device="cuda"), torch.randn(channels, device="cuda")
    origin = torch.full((channels,), 29.0, device="cuda")
    close = (
        {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-3, "atol": 1e-4}
    )
    plain = plain_kernels.batch_coefficients(x, weight, bias, origin, eps=1e-5)
    fused = triton_kernels.batch_coefficients(x, weight, bias, origin, eps=1e-5)
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-4)
    takes = activation in ("none", "relu") and channels % 8 == 0
    residual = pictures(shape, dtype) if adds and takes else None
    ours, above = triton_kernels.normalize(x, plain, residual, activation=activation)
    theirs, mask = plain_kernels.normalize(x, plain, residual, activation=activation)
    torch.testing.assert_close(ours, theirs, **close)
    gradient = pictures(shape, dtype)
    second = pictures(shape, dtype) if two else None
    ours, kept = triton_kernels.parameter_gradients(
        gradient, second, x, plain, above, activation=activation, batch=True
    )
    theirs, masked = plain_kernels.parameter_gradients(
        gradient, second, x, plain, mask, activation=activation, batch=True
    )
    count = x.numel() // channels
    torch.testing.assert_close(ours[:2] / count, theirs[:2] / count, rtol=1e-3, atol=1e-3)
    left: Activation = activation if above is None and second is None else "none"
    ours = triton_kernels.input_gradient(kept, x, plain, theirs, activation=left)
    theirs = plain_kernels.input_gradient(masked, x, plain, theirs, activation=left)
    torch.testing.assert_close(ours, theirs, **close)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("two", [True, False])
def test_the_pool_gives_what_the_plain_form_gives(shape: tuple[int, ...], two: bool) -> None:
    from acclimate.acceleration import triton_kernels

    torch.manual_seed(0)
    x = pictures(shape, torch.float32)
    parts = torch.rand(4, shape[1], device="cuda") - 0.3
    ours, chosen = triton_kernels.normalize_and_pool(x, parts, **POOL)
    theirs, places = plain_kernels.normalize_and_pool(x, parts, **POOL)
    torch.testing.assert_close(ours, theirs)
    gradient = torch.randn_like(ours)
    second = torch.randn_like(ours) if two else None
    sums = triton_kernels.pooled_gradients(gradient, second, x, parts, chosen, **POOL)
    plain = plain_kernels.pooled_gradients(gradient, second, x, parts, places, **POOL)
    torch.testing.assert_close(sums[:2], plain, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("recipe", ["ent", "rpl", "hard", "soft"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_captured_run_ends_where_the_same_run_ends_uncaptured(
    recipe: str, optimizer: str
) -> None:
    x = torch.rand(16, 32, 3, 32, 32, generator=torch.Generator().manual_seed(0)).cuda()
    learners = [
        Learner(
            Residual().cuda(),
            get_recipe(recipe, {"optimizer": optimizer, "optimizer.lr": 1e-2}),
            acceleration=Acceleration(channels_last=True, fused=True, recorded=recorded),
        )
        for recorded in (True, False)
    ]
    for number, batch in enumerate(x):
        part = batch[:20] if number % 5 == 4 else batch  # another size in between
        ours, theirs = (learner.step(part) for learner in learners)
        torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-3, atol=1e-3)
    assert learners[0].steps == learners[1].steps == 16
    assert learners[0].forwards == learners[1].forwards
    assert learners[0].backwards == learners[1].backwards
    for one, other in zip(*(each.learning.values() for each in learners), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        for _ in range(6):
            ours, theirs = (learner.predict(x[0]) for learner in learners)
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_going_back_and_on_is_captured_anew() -> None:
    x = torch.rand(8, 32, 3, 32, 32, generator=torch.Generator().manual_seed(0)).cuda()
    learner = Learner(
        Residual().cuda(),
        get_recipe("ent", {"optimizer.lr": 1e-2}),
        acceleration=Acceleration(fused=True, recorded=True),
    )
    start = {name: tensor.clone() for name, tensor in learner.state_tensors().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", AcclimateWarning)  # such as: could not be captured
        first = [learner.step(batch).logits for batch in x]
        learner.load_state_tensors(start)
        second = [learner.step(batch).logits for batch in x]
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_a_teachers_captured_predictions_follow_its_weights() -> None:
    x = torch.rand(8, 32, 3, 32, 32, generator=torch.Generator().manual_seed(0)).cuda()
    ours, theirs = (
        Learner(
            Residual().cuda(),
            get_recipe("cotta", {"optimizer.lr": 1e-2, "teacher.views_per_image": 3}),
            acceleration=Acceleration(channels_last=True, fused=True, recorded=recorded),
        )
        for recorded in (True, False)
    )
    for batch in x:
        one, other = (learner.step(batch).logits for learner in (ours, theirs))
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    recorded = [r for r in ours.network._cache.graphed.values() if r._graphs]
    assert len(recorded) >= 2  # by the teacher's weights, and by the source's


def test_work_that_reads_back_runs_without_a_graph_and_warns() -> None:
    def work(images: Tensor) -> tuple[Tensor, ...]:
        return (images * float(images.sum()),)

    graphed = GraphedWork(work)
    x = torch.ones(3, device="cuda")
    for _ in range(3):
        graphed(x)
    with pytest.warns(match="could not be captured"):
        (result,), replayed = graphed(x)
    assert not replayed
    torch.testing.assert_close(result, 3 * x)
    assert not graphed(x)[1]
    assert torch.rand(3, device="cuda").is_cuda  # the generator is free again


def test_what_is_no_number_stays_none() -> None:
    learner = Learner(
        Residual().cuda(),
        get_recipe("ent", {}),
        acceleration=Acceleration(channels_last=True, fused=True, recorded=True),
    )
    x = torch.rand(8, 3, 32, 32, device="cuda")
    learner.predict(x)
    x[0, 0, 0, 0] = float("nan")
    assert not torch.isfinite(learner.predict(x)).all()


def test_a_run_leaves_no_memory_behind() -> None:
    x, kept = torch.rand(64, 3, 32, 32, device="cuda"), []
    for _ in range(4):
        how = Acceleration(channels_last=True, fused=True, recorded=True)
        learner = Learner(Residual(64).cuda(), get_recipe("ent", {}), acceleration=how)
        for _ in range(6):
            learner.step(x)
        learner.release()
        kept.append(torch.cuda.memory_reserved())
    assert kept[-1] - kept[0] < 8 * 2**20  # a recording works in more than 20 MiB


def test_adam_goes_on_from_a_checkpoint() -> None:
    x = torch.rand(6, 32, 3, 32, 32, generator=torch.Generator().manual_seed(0)).cuda()
    options = {"optimizer": "adam", "optimizer.lr": 1e-2}
    learners = [Learner(Residual().cuda(), get_recipe("ent", options)) for _ in range(2)]
    for batch in x[:3]:
        learners[0].step(batch)
    stored = {name: tensor.cpu() for name, tensor in learners[0].state_tensors().items()}
    learners[1].load_state_tensors(stored)
    for batch in x[3:]:
        ours, theirs = (learner.step(batch).logits for learner in learners)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_any_gpu_will_do() -> None:
    model = Residual().to("cuda:1")
    how = Acceleration(channels_last=True, fused=True, recorded=True)
    learner = Learner(model, get_recipe("ent", {}), acceleration=how)
    for _ in range(6):
        learner.step(torch.rand(16, 3, 32, 32, device="cuda:1"))
