"""New layers in a trained model, hooked in, nothing wrapped: the model's own keys stay.

Houlsby et al.'s bottleneck adapters for transformer blocks, and a module for the input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "NAME",
    "BottleneckAdapter",
    "insert_adapters",
    "insert_input_adapter",
    "remove_adapters",
    "remove_input_adapter",
    "transformer_sublayers",
]

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
        """Add the bottleneck's output."""
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


def _adapt_input(host: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    adapter: nn.Module = getattr(host, NAME)
    if args:
        return (adapter(args[0]), *args[1:]), kwargs
    name = next(iter(kwargs))  # some libraries' models are called with pixel_values=images
    return args, {**kwargs, name: adapter(kwargs[name])}


def _first(model: nn.Module) -> nn.Module:
    """The module that is given the images: the model, or where it is a plain chain, its first."""
    # A chain would call whatever is added to it as its last link.
    while type(model).forward is nn.Sequential.forward and len(list(model.children())):
        model = next(model.children())
    return model


def insert_input_adapter(model: nn.Module, adapter: nn.Module) -> None:
    """Let a model see its images through an adapter; it takes the place of one before it."""
    remove_input_adapter(model)
    host = _first(model)
    host.add_module(NAME, adapter)
    host.register_forward_pre_hook(_adapt_input, with_kwargs=True)


def remove_input_adapter(model: nn.Module) -> nn.Module | None:
    """Take the input's adapter out again; the adapter, or None where there is none."""
    host = _first(model)
    for key, hook in list(host._forward_pre_hooks.items()):
        if hook is _adapt_input:
            del host._forward_pre_hooks[key]
            host._forward_pre_hooks_with_kwargs.pop(key, None)
            adapter: nn.Module = getattr(host, NAME)
            delattr(host, NAME)
            return adapter
    return None


def remove_adapters(model: nn.Module) -> None:
    """Take all adapters out again, and the hooks that call them."""
    remove_input_adapter(model)
    for module in model.modules():
        if hasattr(module, NAME):
            delattr(module, NAME)
            for key, hook in list(module._forward_hooks.items()):
                if hook is _adapt_output:
                    del module._forward_hooks[key]
