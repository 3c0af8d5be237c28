"""REM, beside a vision transformer taken apart."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.sar import EarlyAffine
from nets import bn_net, images, same_tensors, tiny_vit
from plain import copied, has_moved, our_run, plain_entropy

LR = 0.01
BATCHES = [images(6, seed=seed, size=16).double() for seed in range(4)]


def vit() -> Any:
    """Sixteen tokens and the class's; sure enough of itself to have entropies to rank."""
    net: Any = tiny_vit(depth=4, patch_size=4)
    with torch.no_grad():
        net.head.weight.mul_(200)
    return net.double()


def shown(net: Any, x: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """The logits for the tokens that are kept, and the attention of the class token."""
    tokens = net.patch_embed(x)
    tokens = torch.cat([net.cls_token.expand(len(x), -1, -1), tokens], dim=1) + net.pos_embed
    if kept is not None:
        rows = torch.arange(len(x))[:, None]
        tokens = torch.cat([tokens[:, :1], tokens[:, 1:][rows, kept]], dim=1)
    for block in net.blocks[:-1]:
        tokens = block(tokens)
    last = net.blocks[-1]
    attention = last.attn
    heads, width = attention.num_heads, attention.head_dim
    parts = attention.qkv(last.norm1(tokens)).view(len(x), -1, 3, heads, width)
    q, k = parts[:, :, 0].transpose(1, 2), parts[:, :, 1].transpose(1, 2)
    weights = (q @ k.transpose(2, 3) / width**0.5).softmax(dim=3)
    return net.head(net.norm(last(tokens))[:, 0]), weights.mean(dim=1)[:, 0, 1:].detach()


def by_hand(margin: float) -> tuple[list[Tensor], dict[str, Tensor], float]:
    net = vit().requires_grad_(False)
    affine = {name: net.get_parameter(name).requires_grad_() for name in EarlyAffine().names(net)}
    optimizer = torch.optim.Adam(affine.values(), lr=LR)
    answers, ranked = [], 0.0
    for x in BATCHES:
        whole, attended = shown(net, x, None)
        answers.append(whole.detach())
        logits = [whole]
        for count in (14, 12):  # of 16, less a tenth and two
            kept = attended.sort(dim=1, stable=True).indices[:, :count]
            logits.append(shown(net, x, kept)[0])
        loss = torch.zeros(())
        for i, j in ((0, 1), (0, 2), (1, 2)):
            label = logits[i].detach().softmax(dim=1)
            loss = loss - (label * logits[j].log_softmax(dim=1)).sum(dim=1).mean()
            gap = plain_entropy(logits[i]) - plain_entropy(logits[j]).detach()
            over = (gap + margin).clamp_min(0)
            ranked += float(over.detach().sum())
            loss = loss + over.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return answers, {name: p.detach() for name, p in affine.items()}, ranked


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_four_steps_equal_plain_pytorch(margin: float) -> None:
    options = {"optimizer.lr": LR, "objective.margin": margin, "batch_size": 6}
    answers, parameters, learner = our_run("rem", options, model=vit(), batches=BATCHES)
    expected, affine, ranked = by_hand(margin * torch.tensor(5.0).double().log().item())
    assert ranked > 0, "some entropies must be in the wrong order"
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-8, rtol=0)
    assert (learner.forwards, learner.backwards) == (3 * len(BATCHES), len(BATCHES))


def test_the_hooks_are_gone_from_the_model_returned() -> None:
    net = vit().float()
    data = torch.cat(BATCHES).float()
    result = acclimate.adapt(
        net, data, "rem", options={"optimizer.lr": LR}, batch_size=6, guard="observe",
        progress=False,
    )  # fmt: skip
    assert not any(module._forward_pre_hooks for module in result.model.modules())
    assert torch.equal(result.model(data).argmax(dim=1), result.predictions)


def test_a_stream_resets_pauses_resumes_and_is_copied() -> None:
    data = [batch.float() for batch in BATCHES]
    stream = acclimate.Stream(vit().float(), "rem", guard="off")
    first = [stream(x) for x in data]
    stream.reset()
    assert all(torch.equal(stream(x), answer) for x, answer in zip(data, first, strict=True))
    stream.pause()
    known = copied(stream.learner)
    assert torch.equal(stream(data[0]), stream(data[0]))
    assert same_tensors(known, stream.learner.state_tensors())
    stream.resume()
    other = copy.deepcopy(stream)
    assert torch.equal(stream(data[1]), other(data[1]))
    assert torch.equal(stream(data[2]), other(data[2]))


def test_a_wrapped_transformer_and_a_single_image() -> None:
    learner = Learner(nn.Sequential(nn.Identity(), vit()), get_recipe("rem"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", AcclimateWarning)
        result = learner.step(BATCHES[0][:1])
    assert result.loss is not None
    assert torch.isfinite(result.loss)


def test_what_has_no_tokens_or_too_few_is_refused() -> None:
    with pytest.raises(AcclimateError, match=r"expected a vision transformer .* got Sequential"):
        Learner(bn_net(), get_recipe("rem"))
    with pytest.raises(AcclimateError, match=r"share · \(levels - 1\) < 1, .* got 0.5 and 3"):
        get_recipe("rem", {"objective.share": 0.5})
