"""``acclimate:NAME``, which comes with this package, and ``py:module:function``, the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import nn

from acclimate.errors import AcclimateError
from acclimate.models.architectures import ARCHITECTURES, untrained
from acclimate.models.checkpoints import checkpoints
from acclimate.models.filling import colour_scale, fill
from acclimate.models.networks.digits import load_digits_model
from acclimate.models.record import LoadedModel
from acclimate.models.source_timm import preprocessing_of
from acclimate.models.sources import Request, no_class_count, with_weights
from acclimate.models.weights import load_weights
from acclimate.registry import Registry, call_found, find_object

__all__ = ["builtin_names", "load_builtin", "load_python", "register_builtin", "want_trained"]

Maker = Callable[[], LoadedModel]

_MODELS: Registry[Maker] = Registry("acclimate model")
_MODELS.add("digits", load_digits_model)
for _name in ARCHITECTURES:
    _MODELS.add(_name, partial(untrained, _name))
for _name, _checkpoint in checkpoints().items():
    _MODELS.add(_name, _checkpoint.load)


def register_builtin(name: str) -> Callable[[Maker], Maker]:
    """A decorator that makes a function's model available as ``acclimate:NAME``.

    >>> from torch import nn
    >>> @register_builtin("doc-example")
    ... def example() -> LoadedModel:
    ...     return LoadedModel(name="acclimate:doc-example", model=nn.Linear(2, 2))
    >>> "doc-example" in builtin_names()
    True
    """
    return _MODELS.register(name)


def builtin_names() -> list[str]:
    """The names after ``acclimate:``."""
    return _MODELS.names()


def want_trained(spec: str, weights: str | Path | None = None) -> None:
    """Refuse a bare architecture without weights, whose predictions would be random.

    >>> want_trained("acclimate:wrn-40-2", "wrn.safetensors")
    >>> want_trained("acclimate:wrn-40-2")
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: acclimate:wrn-40-2 is a network without weights: add --weights
    FILE, or name one that has some (acclimate:wrn-40-2-augmix-cifar10)
    """
    prefix, _, name = spec.partition(":")
    if weights is not None or prefix != "acclimate" or name not in ARCHITECTURES:
        return
    alike = [f"acclimate:{each}" for each in builtin_names() if each.startswith(f"{name}-")]
    others = f"name one that has some ({', '.join(alike)})" if alike else "choose another"
    raise AcclimateError(f"{spec} is a network without weights: add --weights FILE, or {others}")


def load_builtin(request: Request) -> LoadedModel:
    """One of the package's own models."""
    if request.name in ARCHITECTURES:
        loaded = untrained(request.name, request.class_count)
        return loaded if request.weights is None else _filled(loaded, request.weights, request)
    make = _MODELS[request.name]
    no_class_count(request)
    return with_weights(replace(make(), name=request.spec), request)


def _filled(loaded: LoadedModel, weights: Path, request: Request) -> LoadedModel:
    """``loaded`` with the weights, and the mean and std of the file if it has them."""
    tensors = load_weights(weights, unsafe_pickle=request.unsafe_pickle)
    fill(loaded.model, tensors)
    scale, preprocessing = colour_scale(tensors), loaded.preprocessing
    # Ten outputs are not always CIFAR-10's: the file does not name them.
    loaded = replace(loaded, classes=None)
    if scale is None or preprocessing is None:
        return replace(loaded, source=f"{weights}, without mean and std: check those above")
    mean, std = (part * (preprocessing.channels // len(part)) for part in scale)
    return replace(
        loaded,
        preprocessing=replace(preprocessing, mean=mean, std=std),
        source=f"{weights}, with its mean and std",
    )


def load_python(request: Request) -> LoadedModel:
    """The model that a user's function makes; the current folder can be imported from."""
    no_class_count(request)
    function = find_object(request.name)
    if isinstance(function, nn.Module) or not callable(function):
        raise AcclimateError(
            f"expected a function at {request.spec} that makes the model, "
            f"got a {type(function).__name__}"
        )
    made = call_found(function, request.spec)
    if isinstance(made, nn.Module):
        made = LoadedModel(name=request.spec, model=made, preprocessing=preprocessing_of(made))
    if not isinstance(made, LoadedModel):
        raise AcclimateError(
            f"expected a torch.nn.Module (or an acclimate.models.LoadedModel) from {request.spec}, "
            f"got {type(made).__name__}"
        )
    return with_weights(replace(made, name=request.spec), request)
