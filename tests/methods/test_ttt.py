"""TTT: the rotation head of the pre-training goes on teaching the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import acclimate
from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.ttt import turned
from acclimate.methods.views import random_crops
from acclimate.stream import Stream
from nets import bn_net, gn_net, images, same_tensors, snapshot, tiny_vit

COPIES, LR = 6, 0.05
ONLINE = {"episode": "none", "epochs": 1}


def written(folder: Path, features: int = 6) -> str:
    draw = torch.Generator().manual_seed(5)
    head = {
        "weight": 0.3 * torch.randn(4, features, generator=draw),
        "bias": 0.1 * torch.randn(4, generator=draw),
    }
    path = folder / f"head{features}.safetensors"
    save_file(head, path)
    return str(path)


def options(folder: Path, features: int = 6, **changes: Any) -> dict[str, Any]:
    small = {"objective.copies": COPIES, "optimizer.lr": LR, "epochs": 2}
    return {"objective.head": written(folder, features), **small, **changes}


def head_of(path: str) -> nn.Linear:
    head = nn.Linear(6, 4)
    head.load_state_dict(load_file(path))
    return head.double()


def one_step(
    net: nn.Sequential, head: nn.Module, x: Tensor, optimizer: Any, draw: torch.Generator
) -> None:
    copies = torch.cat([torch.stack([image] * COPIES) for image in x])
    cropped = random_crops(copies, (0.7, 1.0), generator=draw)
    quarters = torch.randint(4, (len(copies),), generator=draw)
    views = torch.stack(
        [torch.rot90(c, int(q), dims=(1, 2)) for c, q in zip(cropped, quarters, strict=True)]
    )
    optimizer.zero_grad()
    nn.functional.cross_entropy(head(net[:-1](views)), quarters).backward()
    optimizer.step()


@pytest.mark.parametrize("learn_head", [False, True])
def test_three_images_of_three_steps_equal_plain_pytorch(tmp_path: Path, learn_head: bool) -> None:
    chosen = options(tmp_path, epochs=3) | {"objective.learn_head": learn_head}
    learner = Learner(gn_net().double(), get_recipe("ttt", chosen))
    x = images(3).double()
    draw = torch.Generator().manual_seed(0)
    expected = []
    for image in x:
        net, head = gn_net().double(), head_of(chosen["objective.head"])
        learning = [*net[:-1].parameters(), *(head.parameters() if learn_head else [])]
        optimizer = torch.optim.SGD(learning, lr=LR)
        for _ in range(3):
            one_step(net, head, image[None], optimizer, draw)
        expected.append(net(image[None]).detach())
    answer = learner.step(x).logits
    torch.testing.assert_close(answer, torch.cat(expected), atol=1e-9, rtol=0)
    assert float((answer - gn_net().double()(x).detach()).abs().max()) > 1e-3


def test_online_keeps_what_it_learns(tmp_path: Path) -> None:
    chosen = options(tmp_path, **ONLINE)
    learner = Learner(gn_net().double(), get_recipe("ttt", chosen))
    net, head = gn_net().double(), head_of(chosen["objective.head"])
    optimizer = torch.optim.SGD(net[:-1].parameters(), lr=LR)
    draw = torch.Generator().manual_seed(0)
    for seed in range(4):
        x = images(3, seed=seed).double()
        before = net(x).detach()
        torch.testing.assert_close(learner.step(x).logits, before, atol=1e-9, rtol=0)
        one_step(net, head, x, optimizer, draw)
    ours = dict(learner.model.named_parameters())
    torch.testing.assert_close(ours, dict(net.named_parameters()), atol=1e-9, rtol=0)


def test_the_published_rate_is_that_of_one_image_online(tmp_path: Path) -> None:
    chosen = {"objective.head": written(tmp_path), **ONLINE, "batch_size": 1}
    assert Learner(gn_net(), get_recipe("ttt", chosen)).lr == 1e-3
    assert Learner(gn_net(), get_recipe("ttt", chosen), batch_size=8).lr == 8e-3


def test_a_step_costs_one_pass_of_the_copies_and_one_gradient(tmp_path: Path) -> None:
    learner = Learner(gn_net(), get_recipe("ttt", options(tmp_path)))
    seen = []
    learner.model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    learner.step(images(1))
    assert seen == [COPIES, COPIES, 1]  # two steps, and the answer
    assert learner.backwards == 2


def test_classifier_and_head_stay_and_the_features_move(tmp_path: Path) -> None:
    learner = Learner(gn_net(), get_recipe("ttt", options(tmp_path, **ONLINE)))
    start, head = snapshot(learner.model), snapshot(learner.states["objective"].head)
    learner.step(images(4))
    now = snapshot(learner.model)
    moved = {name for name in start if not torch.equal(start[name], now[name])}
    assert moved == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert same_tensors(snapshot(learner.states["objective"].head), head)


def test_it_learns_to_tell_turns(tmp_path: Path) -> None:
    chosen = options(tmp_path, **ONLINE) | {"objective.learn_head": True, "optimizer.lr": 0.3}
    learner = Learner(gn_net(), get_recipe("ttt", chosen))
    ramp = torch.linspace(-2, 2, 8)[:, None].expand(8, 3, 8, 8)  # which way it rises tells
    losses = [float(learner.step(ramp).loss or 0) for _ in range(60)]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_adapt_predicts_itself_or_online_returns_a_model(tmp_path: Path) -> None:
    x, chosen = images(6), options(tmp_path)
    settings: dict[str, Any] = {"progress": False, "device": "cpu", "batch_size": 3}
    result = acclimate.adapt(gn_net(), x, "ttt", options=chosen, **settings)
    assert same_tensors(snapshot(result.model), snapshot(gn_net()))
    expected = Learner(gn_net(), get_recipe("ttt", chosen)).step(x).logits
    assert torch.equal(result.predictions, expected.argmax(dim=1))
    online = acclimate.adapt(gn_net(), x, "ttt", options=chosen | ONLINE, **settings)
    assert not same_tensors(snapshot(online.model), snapshot(gn_net()))
    assert torch.equal(online.model(x).argmax(dim=1), online.predictions)


@pytest.mark.parametrize("episode", ["image", "batch", "none"])
def test_a_stream_goes_on_from_its_state(tmp_path: Path, episode: str) -> None:
    chosen = options(tmp_path, episode=episode)
    first, second = (Stream(gn_net(seed=s), "ttt", options=chosen) for s in (0, 1))
    first(images(2))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(images(2, seed=1)), second(images(2, seed=1)))


def test_the_guard_rolls_the_online_version_back(tmp_path: Path) -> None:
    chosen = options(tmp_path, **ONLINE) | {"optimizer.lr": 1e4}
    stream = Stream(gn_net(), "ttt", options=chosen, guard=Guard(check_every=1))
    with pytest.warns(UserWarning, match="went back to step 0"):
        stream(images(8))
    assert same_tensors(snapshot(stream.model), snapshot(gn_net()))


@pytest.mark.parametrize(("net", "features", "size"), [(bn_net, 8, 8), (tiny_vit, 16, 16)])
def test_any_architecture_and_precision(tmp_path: Path, net: Any, features: int, size: int) -> None:
    stream = Stream(net().double(), "ttt", options=options(tmp_path, features))
    assert torch.isfinite(stream(images(2, size=size).double())).all()


# Refusals


def test_without_a_head_it_says_where_to_get_one() -> None:
    message = r"objective\.head=FILE \(`acclimate pretrain --method ttt` writes head\.safetensors"
    with pytest.raises(AcclimateError, match=message):
        acclimate.adapt(gn_net(), images(4), "ttt", progress=False)
    with pytest.raises(AcclimateError, match=message):
        Stream(gn_net(), "ttt")


def test_a_head_of_another_model_or_no_head_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AcclimateError, match=r"no rotation head for 6 features: .*size mismatch"):
        Stream(gn_net(), "ttt", options={"objective.head": written(tmp_path, 7)})
    save_file({"other": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(AcclimateError, match="no rotation head for 6 features"):
        Stream(gn_net(), "ttt", options={"objective.head": str(tmp_path / "other.safetensors")})
    with pytest.raises(AcclimateError, match="could not read"):
        Stream(gn_net(), "ttt", options={"objective.head": str(tmp_path / "none.safetensors")})


def test_images_that_are_not_square_are_refused(tmp_path: Path) -> None:
    stream = Stream(gn_net(), "ttt", options=options(tmp_path))
    with pytest.raises(AcclimateError, match="expected square images to turn, got 8×6"):
        stream(images(2)[..., :6])
    with pytest.raises(AcclimateError, match="expected square"):
        turned(torch.zeros(1, 3, 4, 2), torch.tensor([0]))
