"""A model's twin that runs faster: the same parameters, other operations."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate.acceleration.convolution import FrozenConv, StemConv
from acclimate.acceleration.norm import FusedNorm, mean_pool
from acclimate.acceleration.plain_kernels import Activation

__all__ = ["bypassed", "make_twin"]

_ADD: tuple[Callable[..., Any], ...] = (operator.add, operator.iadd, torch.add)
_KINDS: dict[type[nn.Module], Activation] = {
    nn.Identity: "none",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
}
_FUNCTIONS: dict[Any, Activation] = {
    F.relu: "relu",
    F.relu_: "relu",
    torch.relu: "relu",
    torch.relu_: "relu",
    F.relu6: "relu6",
    F.silu: "silu",
}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Batch norm of any kind is left whole: how it works is switched from outside. So are
        linear layers: features are taken from the hook before the last of them.
        """
        whole = isinstance(m, (_BatchNorm, nn.Linear))
        return whole or super().is_leaf_module(m, module_qualified_name)


def make_twin(model: nn.Module, *, dtype: torch.dtype) -> fx.GraphModule | None:
    """The model with fused batch norm and with convolutions that do not learn in ``dtype``.

    It shares every parameter and every other layer with the model, under the same names. None where
    the model cannot be read (its path depends on the data), or nothing would be gained.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    >>> model = model.requires_grad_(False).eval()
    >>> twin, x = make_twin(model, dtype=torch.float32), torch.rand(2, 3, 8, 8)
    >>> torch.allclose(twin(x), model(x), atol=1e-6)
    True
    """
    try:
        return _make_twin(model, dtype)
    except Exception:  # whatever a model does that tracing does not follow
        return None


def bypassed(model: nn.Module, twin: fx.GraphModule) -> list[nn.Module]:
    """The modules that a twin does not call as they are: hooks on them would be missed.

    Batch norm is none of them: its stand-in looks for hooks itself.
    """
    called = {str(node.target) for node in twin.graph.nodes if node.op == "call_module"}
    norms = {name for name in called if isinstance(twin.get_submodule(name), FusedNorm)}
    kept = {name for name in called if _same(model, twin, name)} | norms
    return [
        module
        for name, module in model.named_modules()
        if not any(name == each or name.startswith(f"{each}.") for each in kept)
    ]


def _same(model: nn.Module, twin: nn.Module, name: str) -> bool:
    return twin.get_submodule(name) is model.get_submodule(name)


def _make_twin(model: nn.Module, dtype: torch.dtype) -> fx.GraphModule | None:
    parameters = inspect.signature(model.forward).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    graph = _Tracer().trace(model, concrete_args=defaults)
    twin = fx.GraphModule(model, graph)
    replaced = False
    for name in sorted({str(n.target) for n in graph.nodes if n.op == "call_module"}):
        module = model.get_submodule(name)
        if (own := _own_activation(module)) is not None:
            assert isinstance(module, nn.BatchNorm2d)
            twin.set_submodule(name, FusedNorm(module, activation=own))
        elif StemConv.takes(module):
            assert isinstance(module, nn.Conv2d)
            twin.set_submodule(name, StemConv(module, dtype=dtype))
        elif FrozenConv.takes(module):
            assert isinstance(module, nn.Conv2d)
            twin.set_submodule(name, FrozenConv(module, dtype=dtype))
        else:
            continue
        replaced = True
    if not replaced:
        return None
    for node in list(graph.nodes):
        _pool_by_means(twin, node)
    called = [node for node in graph.nodes if node.op == "call_module"]
    for node in called:
        if type(_module(twin, node)) is nn.Identity:
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)
    for node in called:
        module = _module(twin, node)
        if isinstance(module, FusedNorm) and module.activation == "none" and len(node.args) == 1:
            _take_in(twin, node)
    graph.lint()
    twin.recompile()
    return twin


def _pool_by_means(twin: fx.GraphModule, node: fx.Node) -> None:
    """Send average pooling, a function's or a layer's, to ours."""
    if node.op == "call_function" and node.target is F.avg_pool2d:
        node.target = mean_pool
    layer = _module(twin, node) if node.op == "call_module" else None
    if type(layer) is nn.AvgPool2d:
        size = layer.kernel_size, layer.stride, layer.padding
        how = layer.ceil_mode, layer.count_include_pad, layer.divisor_override
        with twin.graph.inserting_before(node):
            ours = twin.graph.call_function(mean_pool, (node.all_input_nodes[0], *size, *how))
        node.replace_all_uses_with(ours)
        twin.graph.erase_node(node)


def _own_activation(module: nn.Module) -> Activation | None:
    """What a batch norm does after normalising; None where it cannot be replaced.

    Torch's own does nothing; timm's has an activation of its own. It must have scale, offset and
    statistics.
    """
    if not isinstance(module, nn.BatchNorm2d) or not module.affine or module.running_mean is None:
        return None
    if type(module) is nn.BatchNorm2d:
        return "none"
    inner = {name: type(part) for name, part in module.named_children()}
    plain = set(inner) == {"drop", "act"} and inner["drop"] is nn.Identity
    return _KINDS.get(inner["act"]) if plain and type(module).__name__ == "BatchNormAct2d" else None


def _module(twin: fx.GraphModule, node: fx.Node) -> nn.Module:
    return twin.get_submodule(str(node.target))


def _take_in(twin: fx.GraphModule, norm: fx.Node) -> None:
    """Let a batch norm do what alone uses its output: addition, activation, pooling."""
    taken, residual, pool = [norm], None, None
    following = _only_user(norm)
    if following is not None and _is_sum(following, norm):
        others = [each for each in following.args if each is not norm]
        if len(others) == 1:
            residual = others[0]
            taken.append(following)
            following = _only_user(following)
    activation = None if following is None else _activation(twin, following)
    if following is None or activation is None or (residual is not None and activation != "relu"):
        return
    taken.append(following)
    behind = _only_user(following)
    if behind is not None and residual is None and activation == "relu":
        pool = _pooling(twin, behind)
        taken += [behind] if pool else []
    last = taken[-1]
    readers = list(last.users)
    fork = len(readers) == 2
    with twin.graph.inserting_before(last):
        arguments = (norm.args[0], residual, activation, pool, fork)
        fused = twin.graph.call_module(str(norm.target), arguments)
        for number, reader in enumerate(readers):
            one = twin.graph.call_function(operator.getitem, (fused, number)) if fork else fused
            reader.replace_input_with(last, one)
    for node in reversed(taken):
        twin.graph.erase_node(node)


def _pooling(twin: fx.GraphModule, node: fx.Node) -> tuple[int, int, int] | None:
    """Window, stride and padding, if the node is a plain max pooling with square windows."""
    module = _module(twin, node) if node.op == "call_module" else None
    if type(module) is not nn.MaxPool2d or module.ceil_mode or module.return_indices:
        return None
    sides = module.kernel_size, module.stride, module.padding, module.dilation
    if not all(isinstance(side, int) for side in sides) or module.dilation != 1:
        return None
    assert isinstance(module.kernel_size, int)
    assert isinstance(module.stride, int)
    assert isinstance(module.padding, int)
    small = module.kernel_size <= 8  # a byte holds the number of a pixel in the window
    return (module.kernel_size, module.stride, module.padding) if small else None


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _is_sum(node: fx.Node, norm: fx.Node) -> bool:
    """Whether a node adds something to a norm's output, and to nothing else in place."""
    if node.op != "call_function" or node.target not in _ADD or node.kwargs:
        return False
    if node.target is operator.iadd and node.args[0] is not norm:
        return False
    return len(node.args) == 2 and all(isinstance(each, fx.Node) for each in node.args)


def _activation(twin: fx.GraphModule, node: fx.Node) -> Activation | None:
    """Which activation a node is, of those that a norm can take in."""
    if node.op == "call_module":
        kind = _KINDS.get(type(_module(twin, node)))
        return None if kind == "none" else kind
    return _FUNCTIONS.get(node.target) if node.op == "call_function" else None
