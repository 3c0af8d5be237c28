"""A batch, a name and a severity in, the shifted batch out; and how a corruption is registered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from acclimate.data.corruptions.draws import Draws, image_keys
from acclimate.data.corruptions.filters import Pixels, grey_to_rgb, quantize, rgb_to_grey
from acclimate.data.shift import DEV, PRESETS, SEVERITIES, TEST, Preset
from acclimate.errors import AcclimateError, unknown_name

__all__ = [
    "REGISTRY",
    "SMALLEST_SIDE",
    "constants",
    "corrupt",
    "corrupt_indexed",
    "corruption",
    "corruptions",
]

SMALLEST_SIDE = 4  # Below this, a forgotten batch axis (H × W × 3) could pass for grey images.

# Values worked on at once: what a core's cache holds of float32 temporaries; what keeps a GPU busy.
_VALUES_ON_CPU = 2**18
_VALUES_ON_GPU = 2**26
_VALUES_OF_MANY = 2**23

_TABLE: dict[str, Any] = json.loads(
    resources.files(__package__).joinpath("constants.json").read_text(encoding="utf-8")
)


def constants(name: str, severity: int, *, preset: Preset) -> dict[str, float | tuple[float, ...]]:
    """The published constants of one corruption at one severity.

    >>> constants("fog", 3, preset="cifar")
    {'amount': 0.75, 'wibble_decay': 2.5}
    >>> constants("motion_blur", 1, preset="imagenet")
    {'radius': 10, 'sigma': 3, 'angle_degrees': (-45, 45)}
    """
    if preset not in PRESETS:
        raise unknown_name("preset", str(preset), PRESETS)
    table: dict[str, Any] = _TABLE[preset]
    if name not in table:
        raise unknown_name("corruption", str(name), table)
    # 3.0 is one of them too, but is no index.
    if not hasattr(severity, "__index__") or severity not in SEVERITIES:
        raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {severity!r}")
    return {key: _at(value, severity) for key, value in table[name].items()}


def _at(value: Any, severity: int) -> float | tuple[float, ...]:
    # A list of five goes by severity; anything else (an angle's range, a scale) holds for all.
    if isinstance(value, list):
        return value[severity - 1] if len(value) == len(SEVERITIES) else tuple(value)
    return float(value)


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """A function on a uint8 batch N × channels × height × width, and what it asks for.

    The published constants reach it as keyword arguments under their names in ``constants.json``.
    It returns uint8, or float values on the scale 0 to 255 that are still to be cut to it.
    """

    apply: Callable[..., Tensor]
    random: bool  # it takes `Draws` as second argument
    colour: bool  # it is always given three channels
    many: bool  # its costs are by the call, not by the pixel; it wants many images at once
    host: bool  # it works on the CPU alone


REGISTRY: dict[str, Corruption] = {}
_Function = TypeVar("_Function", bound=Callable[..., Tensor])
_Images = TypeVar("_Images", Pixels, Tensor)


def corruption(
    *, random: bool = False, colour: bool = False, many: bool = False, host: bool = False
) -> Callable[[_Function], _Function]:
    """Register the decorated function under its own name, and return it unchanged."""

    def register(function: _Function) -> _Function:
        REGISTRY[function.__name__] = Corruption(
            apply=function, random=random, colour=colour, many=many, host=host
        )
        return function

    return register


def corruptions() -> list[str]:
    """The names `corrupt` knows, in the benchmark's order: the test corruptions, then dev.

    >>> corruptions()[:3]
    ['gaussian_noise', 'shot_noise', 'impulse_noise']
    """
    return [name for name in (*TEST, *DEV) if name in REGISTRY]


def corrupt(
    images: _Images, name: str, severity: int, *, preset: Preset, seed: int = 0, start: int = 0
) -> _Images:
    """Corrupt a batch of images as ImageNet-C or CIFAR-10-C would, on the device of the batch.

    Image ``i`` draws its randomness from ``(seed, start + i, name, severity)`` alone, so a data
    set comes out the same however it is cut into batches: pass as ``start`` the index of the
    first image of the batch. Sides may differ and be as short as 4 px. A one-channel image is
    three equal channels: where a corruption adds colour, its luma is returned.

    Args:
        images: uint8, an array N×H×W×3, N×H×W×1 or N×H×W, or a tensor N×3×H×W or N×1×H×W.
        name: one of `corruptions`.
        severity: 1 (mild) to 5.
        preset: whose constants: ``"imagenet"`` (made for 224 px) or ``"cifar"`` (for 32 px).
        seed: another seed, another draw; 0 or more.
        start: the index of the first image in its data set; 0 or more.

    Returns:
        New images of the same kind, shape, dtype and device.

    >>> import numpy as np
    >>> images = np.full((2, 32, 32, 3), 128, dtype=np.uint8)
    >>> shifted = corrupt(images, "fog", 3, preset="cifar")
    >>> shifted.shape, shifted.dtype
    ((2, 32, 32, 3), dtype('uint8'))
    >>> alone = corrupt(images[1:], "fog", 3, preset="cifar", start=1)
    >>> bool((alone == shifted[1:]).all())
    True
    """
    for what, value in (("seed", seed), ("start", start)):
        if not hasattr(value, "__index__") or value < 0:
            raise AcclimateError(f"expected {what} to be an integer >= 0, got {value!r}")
    constants(name, severity, preset=preset)  # a wrong name is reported before a wrong shape
    batch = _to_batch(images)
    indices = torch.arange(start, start + len(batch))
    out = corrupt_indexed(batch, indices, name, int(severity), preset=preset, seed=int(seed))
    if isinstance(images, Tensor):
        return out.contiguous()
    return out.movedim(1, -1).contiguous().numpy().reshape(images.shape)


@torch.no_grad()
def corrupt_indexed(
    images: Tensor, indices: Tensor, name: str, severity: int, *, preset: Preset, seed: int = 0
) -> Tensor:
    """`corrupt` for uint8 images N×C×H×W at any indices of their data set, in any order."""
    settings = constants(name, severity, preset=preset)
    entry, batch = REGISTRY[name], _to_batch(images)
    device = torch.device("cpu") if entry.host else batch.device
    keys = image_keys(indices, seed=seed, name=name, severity=severity).to(device)
    on_cpu = _VALUES_OF_MANY if entry.many else _VALUES_ON_CPU
    values = on_cpu if device.type == "cpu" else _VALUES_ON_GPU
    size = max(1, values // max(1, batch[:1].numel()))
    lift = entry.colour and batch.shape[1] == 1
    out = torch.empty_like(batch)
    for first in range(0, len(batch), size):
        rows = slice(first, first + size)
        source = batch[rows].to(device)
        draws = (Draws(keys[rows]),) if entry.random else ()
        changed = entry.apply(grey_to_rgb(source) if lift else source, *draws, **settings)
        changed = changed if changed.dtype == torch.uint8 else quantize(changed)
        changed = rgb_to_grey(changed) if lift else changed
        if len(batch) <= size:
            return changed.to(batch.device)
        out[rows] = changed
    return out


def _to_batch(images: Pixels | Tensor) -> Tensor:
    """Any accepted batch as one uint8 tensor N×C×H×W; arrays are not copied."""
    if not isinstance(images, (Tensor, np.ndarray)):
        raise AcclimateError(f"expected a numpy array or a tensor, got {type(images).__name__}")
    if images.dtype not in (torch.uint8, np.dtype(np.uint8)):
        raise AcclimateError(
            f"expected uint8 images with values 0 to 255, got {images.dtype}; "
            "corrupt before scaling and normalising"
        )
    if isinstance(images, Tensor):
        batch = images.detach()
        accepted = "N×3×H×W or N×1×H×W"
    else:
        pixels = images[..., None] if images.ndim == 3 else images
        # torch takes neither negative strides nor, without a warning, arrays it might write to.
        sound = pixels.flags.writeable and all(stride >= 0 for stride in pixels.strides)
        batch = torch.from_numpy(pixels if sound else np.array(pixels))
        batch = batch.movedim(-1, 1) if batch.ndim == 4 else batch
        accepted = "N×H×W×3, N×H×W×1 or N×H×W"
    if batch.ndim != 4 or batch.shape[1] not in (1, 3) or min(batch.shape[2:]) < SMALLEST_SIDE:
        raise AcclimateError(
            f"expected a batch of {accepted} with sides of at least {SMALLEST_SIDE} px, "
            f"got shape {tuple(images.shape)}; a single image needs a leading axis (images[None])"
        )
    return batch
