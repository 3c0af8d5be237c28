"""Houlsby et al.'s bottleneck adapters for transformer blocks, hooked in, nothing wrapped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["BottleneckAdapter", "insert_adapters", "remove_adapters", "transformer_sublayers"]

_ATTENTION = ("attn", "attention", "self_attention", "self_attn")
_MLP = ("mlp", "feed_forward", "ffn")
NAME = "acclimate_adapter"


class BottleneckAdapter(nn.Module):
    """x + up(gelu(down(x))), the identity until it learns since ``up`` starts at zero.

    >>> x = torch.ones(1, 2, 8)
    >>> bool((BottleneckAdapter(8, 2, generator=torch.Generator())(x) == x).all())
    True
    """

    def __init__(self, features: int, width: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.down = nn.Linear(features, width)
        self.up = nn.Linear(width, features)
        with torch.no_grad():
            self.down.weight.copy_(torch.randn(width, features, generator=generator) * 1e-2)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, x: Tensor) -> Tensor:
        """Add the bottleneck's answer."""
        change: Tensor = self.up(nn.functional.gelu(self.down(x)))
        return x + change


def transformer_sublayers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The attention and MLP modules of every block that has both, by name."""
    found = []
    for name, block in model.named_modules():
        children = dict(block.named_children())
        attention = next((children[n] for n in _ATTENTION if n in children), None)
        mlp = next((children[n] for n in _MLP if n in children), None)
        if attention is not None and mlp is not None:
            found += [(f"{name}.attention", attention), (f"{name}.mlp", mlp)]
    return found


def _width_of(sublayer: nn.Module) -> int:
    """How many features a sublayer puts out: those of its last linear layer."""
    linear = [m for m in sublayer.modules() if isinstance(m, nn.Linear)]
    return linear[-1].out_features


def _adapt_output(sublayer: nn.Module, inputs: Any, output: Any) -> Any:
    # A function of the module, not a closure, so that a model with adapters can be copied.
    adapter: nn.Module = getattr(sublayer, NAME)
    if isinstance(output, tuple):
        return (adapter(output[0]), *output[1:])
    return adapter(output)


def insert_adapters(model: nn.Module, *, width: int, generator: torch.Generator) -> None:
    """Give every sublayer its adapter; the model's own keys stay as they were.

    A model that has adapters already (it was adapted before) keeps them and learns on.
    """
    for _, sublayer in transformer_sublayers(model):
        if hasattr(sublayer, NAME):
            continue
        like = next(sublayer.parameters())
        adapter = BottleneckAdapter(_width_of(sublayer), width, generator=generator)
        sublayer.add_module(NAME, adapter.to(like.device, like.dtype))
        sublayer.register_forward_hook(_adapt_output)


def remove_adapters(model: nn.Module) -> None:
    """Take all adapters out again, and the hooks that call them."""
    for module in model.modules():
        if hasattr(module, NAME):
            delattr(module, NAME)
            for key, hook in list(module._forward_hooks.items()):
                if hook is _adapt_output:
                    del module._forward_hooks[key]
