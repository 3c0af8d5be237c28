"""What every method must bear in everyday use; the methods' own tests call these."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.errors import AcclimateWarning
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from nets import bn_net, images, same_tensors


def plain(model: nn.Module) -> nn.Module:
    """In evaluation mode but for batch norm, which reads each batch and writes no buffer."""
    model.eval().requires_grad_(True)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            module.running_mean = module.running_var = None
    return model


def copied(learner: Learner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.state_tensors().items()}


def goes_on_from_its_packed_state(
    recipe: str, options: dict[str, Any], make: Any = bn_net, *, size: int = 8
) -> None:
    """Two steps, pack, and a new learner takes the same third and fourth step, bit by bit."""
    batches = [images(8, seed=seed, size=size) for seed in range(4)]
    first = Learner(make(), get_recipe(recipe, options), seed=1)
    for batch in batches[:2]:
        first.step(batch)
    packed = copied(first)
    second = Learner(make(), get_recipe(recipe, options), seed=2)
    second.step(images(8, seed=9, size=size))
    second.load_state_tensors(packed)
    for batch in batches[2:]:
        one, two = first.step(batch), second.step(batch)
        assert torch.equal(one.logits, two.logits)
    assert same_tensors(first.state_tensors(), second.state_tensors())
    assert not same_tensors(packed, first.state_tensors())


def adapts_and_hands_back(recipe: str, options: dict[str, Any], make: Any = bn_net) -> None:
    """``adapt``: twice the same, and the plain model gives the answers that are handed out."""
    data = images(40)
    runs = [
        acclimate.adapt(
            make(), data, recipe, options=options, batch_size=10, guard="observe", progress=False
        )
        for _ in range(2)
    ]
    assert same_tensors(runs[0].model.state_dict(), runs[1].model.state_dict())
    assert torch.equal(runs[0].predictions, runs[1].predictions)
    assert not same_tensors(runs[0].model.state_dict(), make().state_dict())
    if runs[0].recipe.exports:
        with torch.no_grad():
            answers = runs[0].model.eval()(data).argmax(dim=1)
        assert torch.equal(answers, runs[0].predictions)


def streams_resets_and_is_guarded(recipe: str, options: dict[str, Any], make: Any = bn_net) -> None:
    """``Stream``: learns, starts over, pauses, is saved and moved, and the guard takes it back."""
    batches = [images(8, seed=seed) for seed in range(3)]
    stream = acclimate.Stream(make(), recipe, options=options, guard="off")
    first = [stream(batch) for batch in batches]
    assert all(torch.isfinite(answer).all() for answer in first)
    stream.reset()
    again = [stream(batch) for batch in batches]
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    stream.pause()
    known = copied(stream.learner)
    assert torch.equal(stream(batches[0]), stream(batches[0]))
    assert same_tensors(known, stream.learner.state_tensors())

    stream.resume()
    other = acclimate.Stream(make(), recipe, options=options, guard="off", seed=3)
    other.load_state_dict(stream.state_dict())
    assert torch.equal(stream(batches[0]), other(batches[0]))
    assert other.double()(batches[1].double()).dtype == torch.float64
    with torch.inference_mode():
        assert torch.isfinite(stream(batches[1])).all()

    wary = acclimate.Guard(check_every=3, max_drift=1e-12)
    stream = acclimate.Stream(make(), recipe, options=options, guard=wary)
    known = copied(stream.learner)
    for batch in batches[:2]:
        stream(batch)
    with pytest.warns(AcclimateWarning, match=r"moved by .* went back to step 0"):
        stream(batches[2])
    names = [name for name in known if not name.startswith("optimizer")]
    now = stream.learner.state_tensors()
    assert same_tensors({n: known[n] for n in names}, {n: now[n] for n in names})


class Half(nn.Module):
    """A net that computes in bfloat16 and keeps its weights."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits: Tensor = self.net(x)
        return logits


def bears_half_precision(recipe: str, options: dict[str, Any]) -> None:
    learner = Learner(Half(bn_net()), get_recipe(recipe, options))
    for seed in range(3):
        result = learner.step(images(8, seed=seed))
        assert torch.isfinite(result.logits).all()
        assert result.loss is not None
        assert torch.isfinite(result.loss)
    assert {p.dtype for p in learner.learning.values()} == {torch.float32}
