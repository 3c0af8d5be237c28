"""Faster steps: chosen by measurement, checked on the first batch, undone at the end."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.acceleration import EXACT, PLAIN, Acceleration, choose, choosing, differs
from acclimate.acceleration.remembered import CACHE
from acclimate.adaptation.folder import CHECKPOINT
from acclimate.checkpoint import read_tensors
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models.networks.wide_resnet import WideResNet
from acclimate.stream import Stream

FAST = Acceleration(channels_last=True, half=True)
LR = {"optimizer.lr": 1e-2}


def small() -> nn.Module:
    torch.manual_seed(0)
    return WideResNet(10, 1).eval()


def random_images(count: int = 32) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _a_machine_that_has_chosen_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))


# Applying


@pytest.mark.parametrize("recipe", ["ent", "rpl", "hard", "bn"])
def test_channels_last_takes_the_same_steps(recipe: str) -> None:
    options = LR if recipe != "bn" else {}
    exact = Learner(small(), get_recipe(recipe, options))
    fast = Learner(
        small(), get_recipe(recipe, options), acceleration=Acceleration(channels_last=True)
    )
    for learner in (exact, fast):
        learner.start_epoch()
    for part in random_images(96).split(32):
        torch.testing.assert_close(
            fast.step(part).logits, exact.step(part).logits, rtol=1e-4, atol=1e-4
        )
    torch.testing.assert_close(
        fast.release().state_dict(), exact.release().state_dict(), rtol=1e-4, atol=1e-4
    )


def test_bfloat16_stays_near_and_hands_out_single_precision() -> None:
    exact, fast = (
        Learner(small(), get_recipe("ent", LR), acceleration=how) for how in (EXACT, FAST)
    )
    for part in random_images(96).split(32):
        ours, theirs = fast.step(part), exact.step(part)
        assert ours.logits.dtype == torch.float32
        assert ours.loss is not None
        assert ours.loss.dtype == torch.float32
        difference = (ours.logits.softmax(dim=1) - theirs.logits.softmax(dim=1)).abs().max()
        assert 0 < float(difference) < 0.05
    assert {p.dtype for p in fast.learning.values()} == {torch.float32}


def test_the_model_is_returned_as_it_came() -> None:
    model = small()
    strides = {name: p.stride() for name, p in model.named_parameters()}
    learner = Learner(model, get_recipe("ent", LR), acceleration=FAST)
    assert {name: p.stride() for name, p in model.named_parameters()} != strides
    learner.step(random_images())
    released = learner.release()
    assert {name: p.stride() for name, p in released.named_parameters()} == strides
    with torch.no_grad():
        assert released(random_images()).dtype == torch.float32


@pytest.mark.parametrize(("how", "afterwards"), [(FAST, PLAIN), (EXACT, EXACT)])
def test_a_model_returned_runs_as_torch_runs_it_unless_it_was_to_be_exact(
    how: Acceleration, afterwards: Acceleration
) -> None:
    learner = Learner(small(), get_recipe("ent", LR), acceleration=how)
    learner.step(random_images())
    learner.release()
    assert learner.network.acceleration == afterwards
    learner.release()
    assert learner.network.acceleration == afterwards


def test_kernels_are_the_same_every_time_unless_a_search_was_asked_for() -> None:
    cudnn = torch.backends.cudnn
    device = torch.device("cuda")  # flags, which can be set where there is none

    def flags(how: Acceleration) -> tuple[bool, bool, bool]:
        with how.kernels(device):
            return cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32

    assert flags(EXACT) == (True, False, False)
    assert flags(FAST) == (True, False, True)
    assert flags(replace(FAST, searches=True)) == (False, True, True)
    for allowed in (True, False):
        with cudnn.flags(enabled=True, deterministic=False, benchmark=False, allow_tf32=allowed):
            assert flags(PLAIN) == (False, False, allowed)


# Checking


class Delicate(nn.Module):
    """Answers by what bfloat16 rounds away."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.last = nn.Linear(3, 2, bias=False)
        with torch.no_grad():
            self.last.weight.copy_(torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]]))

    def forward(self, x: Tensor) -> Tensor:
        means = self.norm(x).mean(dim=(2, 3))
        large = means + torch.tensor([1e4, 1e4, 0.0])
        logits: Tensor = 50 * self.last(large)
        return logits


def test_a_model_that_does_not_bear_it_runs_as_it_would_by_itself_with_a_warning() -> None:
    learner = Learner(Delicate(), get_recipe("ent", LR), acceleration=Acceleration(half=True))
    exact = Learner(Delicate(), get_recipe("ent", LR))
    with pytest.warns(AcclimateWarning, match=r"faster \(bfloat16\).*PyTorch runs it instead"):
        answer = learner.step(random_images()).logits
    assert learner.network.acceleration == PLAIN
    assert torch.equal(answer, exact.step(random_images()).logits)


def test_it_is_checked_once() -> None:
    learner = Learner(small(), get_recipe("ent", LR), acceleration=FAST)
    calls = []
    learner.model.register_forward_hook(lambda *_: calls.append(1))
    learner.step(random_images())
    compared = len(calls) - 1
    assert compared >= 2
    learner.step(random_images())
    assert len(calls) == compared + 2


def test_broken_images_tell_nothing_about_it() -> None:
    learner = Learner(small(), get_recipe("bn"), acceleration=FAST)
    broken = random_images()
    broken[0] = float("nan")
    learner.step(broken)
    assert learner.network.acceleration == FAST
    assert learner.network.unverified
    learner.step(random_images())
    assert not learner.network.unverified


def test_a_model_with_other_than_images_in_it_is_laid_out_too() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(1, 1, 3))
    how = Acceleration(channels_last=True)
    how.prepare(net)
    assert net[0].weight.is_contiguous(memory_format=torch.channels_last)
    how.undo(net)
    assert net[0].weight.is_contiguous()


def test_what_counts_as_the_same_prediction() -> None:
    sure = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
    assert differs(sure + 0.01, sure) is None
    assert "not finite" in str(differs(sure * float("nan"), sure))
    assert "apart on average" in str(differs(sure.flip(0), sure))
    one_of_many = sure.repeat(100, 1)
    turned = one_of_many.clone()
    turned[:1] = turned[:1].flip(1)
    assert differs(turned, one_of_many) is None  # rounding flips a few
    turned[:20] = one_of_many[:20].flip(1)
    assert "20 confident predictions" in str(differs(turned, one_of_many))
    torn = torch.tensor([[0.01, 0.0]]).repeat(100, 1)
    assert differs(-torn, torn) is None  # a tie may fall either way


# Choosing


def test_what_is_fast_enough_is_left_alone() -> None:
    assert choose(small(), random_images(2), speed="auto") == EXACT
    assert choose(small(), random_images(), speed="exact") == EXACT
    with pytest.raises(AcclimateError, match="did you mean 'max'"):
        choose(small(), random_images(), speed="mxa")  # type: ignore[arg-type]
    with pytest.raises(AcclimateError, match="unknown speed"):
        Stream(small(), speed="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({"exact": 1.0, "channels last": 0.5, "bfloat16, channels last": 0.4}, "bfloat16"),
        ({"exact": 1.0, "channels last": 0.5, "bfloat16, channels last": 0.6}, "channels last"),
        ({"exact": 1.0, "channels last": 0.95, "bfloat16, channels last": 2.0}, "exact"),
        ({"exact": 0.01, "channels last": 0.001, "bfloat16, channels last": 0.001}, "exact"),
    ],
)
def test_the_fastest_is_taken_where_it_gains_enough(
    seconds: dict[str, float], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_seconds", lambda model, images, how: seconds[str(how)])
    assert str(choose(small(), random_images(), speed="max")).startswith(expected)


def test_what_a_clock_chose_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {"channels last": 0.5, "bfloat16, channels last": 2.0, "exact": 1.0}
    slow = {**quick, "channels last": 3.0}
    for seconds, model, batch, expected in [
        (quick, small(), random_images(32), "channels last"),
        (slow, small(), random_images(32) + 1, "channels last"),  # the same run again
        (slow, small(), random_images(16), "exact"),
        (slow, nn.Sequential(small(), nn.ReLU()), random_images(32), "exact"),
        (quick, small(), random_images(16), "exact"),
    ]:
        monkeypatch.setattr(choosing, "_seconds", lambda _, __, how, s=seconds: s[str(how)])
        assert str(choose(model, batch, speed="auto")) == expected


def test_few_images_are_not_worth_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"exact": 1.0, "channels last": 0.5, "bfloat16, channels last": 2.0}
    monkeypatch.setattr(choosing, "_seconds", lambda model, images, how: times[str(how)])
    for images, steps, expected in ((8, 31, "exact"), (8, 32, "channels last")):
        assert str(choose(small(), random_images(images), speed="auto", steps=steps)) == expected
    assert str(choose(small(), random_images(8), speed="auto")) == "channels last"  # nobody knows
    assert str(choose(small(), random_images(8), speed="max", steps=1)) == "channels last"


def test_double_precision_and_models_that_take_no_images_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "_seconds", lambda *_: 1 / 0)
    assert choose(small().double(), random_images().double(), speed="max") == EXACT
    assert choose(nn.Linear(4, 2), torch.rand(8, 4), speed="max") == EXACT


def test_group_norm_is_not_laid_out_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its backward pass would crash the process (torch 2.13)."""
    monkeypatch.setattr(choosing, "_seconds", lambda model, images, how: 1.0 - how.channels_last)
    grouped = nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4, 2))
    assert not choose(grouped, torch.rand(8, 3, 1, 1), speed="max").channels_last
    assert choose(small(), random_images(), speed="max").channels_last


def test_measuring_leaves_the_model_as_it_was() -> None:
    model = small()
    before = {name: (p.stride(), p.clone()) for name, p in model.named_parameters()}
    assert choosing._seconds(model, random_images(), FAST) > 0
    for name, p in model.named_parameters():
        assert p.stride() == before[name][0]
        assert torch.equal(p, before[name][1])


# In adapt and in a stream


def forced(monkeypatch: pytest.MonkeyPatch, how: Acceleration) -> None:
    def chosen(*_: object, speed: str, steps: int | None = None) -> Acceleration:
        return EXACT if speed == "exact" else how

    monkeypatch.setattr("acclimate.adaptation.adapt.choose", chosen)
    monkeypatch.setattr("acclimate.stream.choose", chosen)


def test_adapt_says_how_it_ran_and_returns_a_plain_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forced(monkeypatch, FAST)
    result = acclimate.adapt(small(), random_images(64), "ent", progress=False, batch_size=32)
    assert result.record.acceleration == "bfloat16, channels last"
    assert any("bfloat16, channels last" in note for note in result.notes)
    assert all(p.is_contiguous() for p in result.model.parameters())
    exact = acclimate.adapt(small(), random_images(64), "ent", progress=False, speed="exact")
    assert exact.record.acceleration == "exact"


def test_a_resumed_run_goes_on_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, Acceleration(channels_last=True))
    stopped = KeyboardInterrupt
    steps = Learner.step

    def until(learner: Learner, images: Tensor) -> object:
        if learner.steps == 3:
            raise stopped
        return steps(learner, images)

    def run(out: Path) -> acclimate.AdaptationResult:
        return acclimate.adapt(
            small(), random_images(128), "ent", batch_size=32, out=out, checkpoint_every=0,
            progress=False,
        )  # fmt: skip

    unbroken = run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", until)
        with pytest.raises(stopped):
            run(tmp_path / "broken")
    assert read_tensors(tmp_path / "broken" / CHECKPOINT)[1]["acceleration"]["channels_last"]
    forced(monkeypatch, EXACT)  # what looks faster today is another thing
    resumed = run(tmp_path / "broken")
    for name, value in unbroken.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_a_stream_finds_out_on_its_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, Acceleration(channels_last=True))
    stream = Stream(small(), "ent", options=LR)
    assert stream.learner.network.acceleration == EXACT
    stream(random_images())
    assert stream.learner.network.acceleration.channels_last
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream(random_images())
