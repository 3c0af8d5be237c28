"""Checkpoints of other code bases give the logits they gave there.

The networks here are written out with the module names of those code bases.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.models import fill, load
from acclimate.models.filling import colour_scale, to_ours
from acclimate.models.networks.cifar_resnet import resnet18, resnet50
from acclimate.models.networks.depth26 import ResNet26
from acclimate.models.networks.wide_resnet import WideResNet

Norm = Callable[[int], nn.Module]


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


class TheirWideBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), conv(inputs, outputs, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), conv(outputs, outputs, 3)
        self.equalInOut = inputs == outputs
        self.convShortcut = None if self.equalInOut else conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(x))
        if self.convShortcut is not None:
            x = self.convShortcut(out)
        return x + self.conv2(F.relu(self.bn2(self.conv1(out))))


class TheirStage(nn.Module):
    def __init__(self, count: int, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layer = nn.Sequential(
            TheirWideBlock(inputs, outputs, stride),
            *(TheirWideBlock(outputs, outputs, 1) for _ in range(count - 1)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class TheirWide(nn.Module):
    def __init__(self, depth: int, width: int, classes: int = 10) -> None:
        super().__init__()
        n, (a, b, c) = (depth - 4) // 6, (16 * width, 32 * width, 64 * width)
        self.conv1 = conv(3, 16, 3)
        self.block1 = TheirStage(n, 16, a, 1)
        self.block2 = TheirStage(n, a, b, 2)
        self.block3 = TheirStage(n, b, c, 2)
        self.bn1 = nn.BatchNorm2d(c)
        self.fc = nn.Linear(c, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.block3(self.block2(self.block1(self.conv1(x))))))
        return self.fc(F.avg_pool2d(x, 8).flatten(1))


class TheirBasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, planes, 3, stride), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = conv(planes, planes, 3), nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != planes:
            self.shortcut = nn.Sequential(conv(inputs, planes, 1, stride), nn.BatchNorm2d(planes))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


class TheirBottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        wide = 4 * planes
        self.conv1, self.bn1 = conv(inputs, planes, 1), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = conv(planes, planes, 3, stride), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = conv(planes, wide, 1), nn.BatchNorm2d(wide)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != wide:
            self.shortcut = nn.Sequential(conv(inputs, wide, 1, stride), nn.BatchNorm2d(wide))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(out)) + self.shortcut(x))


class TheirResNet(nn.Module):
    def __init__(self, block: type[TheirBasicBlock | TheirBottleneck], counts: list[int]) -> None:
        super().__init__()
        self.in_planes = 64
        self.conv1, self.bn1 = conv(3, 64, 3), nn.BatchNorm2d(64)
        self.layer1 = self.stage(block, 64, counts[0], 1)
        self.layer2 = self.stage(block, 128, counts[1], 2)
        self.layer3 = self.stage(block, 256, counts[2], 2)
        self.layer4 = self.stage(block, 512, counts[3], 2)
        self.linear = nn.Linear(512 * block.expansion, 10)

    def stage(
        self, block: type[TheirBasicBlock | TheirBottleneck], planes: int, count: int, stride: int
    ) -> nn.Sequential:
        blocks = []
        for s in [stride] + [1] * (count - 1):
            blocks.append(block(self.in_planes, planes, s))
            self.in_planes = planes * block.expansion
        return nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.linear(F.avg_pool2d(x, 4).flatten(1))


class TheirDepth26Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.stride, self.ratio = stride, outputs // inputs
        self.bn1, self.conv1 = norm(inputs), conv(inputs, outputs, 3, stride)
        self.bn2, self.conv2 = norm(outputs), conv(outputs, outputs, 3)

    def forward(self, x: Tensor) -> Tensor:
        change = self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(x))))))
        pooled = nn.AvgPool2d(self.stride)(x)
        return torch.cat([pooled] + [torch.zeros_like(pooled)] * (self.ratio - 1), 1) + change


class TheirDepth26(nn.Module):
    def __init__(self, width: int, norm: Norm) -> None:
        super().__init__()
        a, b, c = 16 * width, 32 * width, 64 * width

        def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
            rest = [TheirDepth26Block(outputs, outputs, 1, norm) for _ in range(3)]
            return nn.Sequential(TheirDepth26Block(inputs, outputs, stride, norm), *rest)

        self.conv1 = conv(3, 16, 3)
        self.layer1, self.layer2, self.layer3 = stage(16, a, 1), stage(a, b, 2), stage(b, c, 2)
        self.bn, self.fc = norm(c), nn.Linear(c, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.layer3(self.layer2(self.layer1(self.conv1(x))))))
        return self.fc(F.avg_pool2d(x, 8).flatten(1))


def shaken(model: nn.Module) -> nn.Module:
    """In eval mode, with statistics and affines that matter."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.normal_(0, 0.2, generator=generator)
        if isinstance(module, nn.BatchNorm2d):
            module.running_var.uniform_(0.5, 1.5, generator=generator)
            module.running_mean.normal_(0, 0.2, generator=generator)
    return model.eval()


IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def assert_same_logits(theirs: nn.Module, ours: nn.Module) -> None:
    with torch.no_grad():
        expected, got = theirs(IMAGES), ours.eval()(IMAGES)
    assert expected.std() > 1e-3
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def eight_groups(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(8, channels)


PAIRS: dict[str, Callable[[], tuple[nn.Module, nn.Module]]] = {
    "wide": lambda: (TheirWide(16, 2), WideResNet(16, 2)),
    "wide 1": lambda: (TheirWide(10, 1), WideResNet(10, 1)),
    "wide 40": lambda: (TheirWide(40, 2), WideResNet(40, 2)),
    "resnet18": lambda: (TheirResNet(TheirBasicBlock, [2, 2, 2, 2]), resnet18()),
    "resnet50": lambda: (TheirResNet(TheirBottleneck, [3, 4, 6, 3]), resnet50()),
    "depth 26": lambda: (TheirDepth26(1, nn.BatchNorm2d), ResNet26(1)),
    "depth 26 gn": lambda: (TheirDepth26(2, eight_groups), ResNet26(2, norm="gn")),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_logits_are_theirs(pair: str) -> None:
    theirs, ours = PAIRS[pair]()
    fill(ours, shaken(theirs).state_dict())
    assert_same_logits(theirs, ours)


@pytest.mark.parametrize("pair", ["wide", "resnet18", "depth 26", "depth 26 gn"])
@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "1."])
def test_prefixes_and_colour_scales_are_taken_off(pair: str, prefix: str) -> None:
    theirs, ours = PAIRS[pair]()
    state = {prefix + name: value for name, value in shaken(theirs).state_dict().items()}
    scale = torch.full((1, 3, 1, 1), 0.5)
    fill(ours, {"normalize.mean": scale, **state, "normalize.std": scale})
    assert_same_logits(theirs, ours)


def test_names_of_the_augmix_code_and_an_unused_stage() -> None:
    theirs, ours = PAIRS["wide"]()
    state = shaken(theirs).state_dict()
    spare = {f"sub_{name}": value for name, value in state.items() if name[:6] == "block1"}
    state = {name.replace("convShortcut", "conv_shortcut"): v for name, v in state.items()}
    fill(ours, {**spare, **state})
    assert_same_logits(theirs, ours)


def test_a_users_own_net_in_that_layout_keeps_its_names() -> None:
    theirs, copy = shaken(TheirWide(10, 1)), TheirWide(10, 1)
    fill(copy, {f"module.{name}": value for name, value in theirs.state_dict().items()})
    assert_same_logits(theirs, copy)


def test_a_net_that_scales_its_own_input_keeps_its_buffers() -> None:
    class Scaled(TheirResNet):
        def __init__(self) -> None:
            super().__init__(TheirBasicBlock, [1, 1, 1, 1])
            self.register_buffer("mu", torch.zeros(3))
            self.register_buffer("sigma", torch.ones(3))

    source, copy = Scaled(), Scaled()
    source.mu += 0.3
    fill(copy, source.state_dict())
    assert torch.equal(copy.mu, source.mu)


def test_other_states_pass_unchanged() -> None:
    for model in (WideResNet(10, 1), ResNet26(1), nn.Linear(2, 2)):
        state = model.state_dict()
        renamed = to_ours(state)
        assert list(renamed) == list(state)
        assert all(renamed[name] is state[name] for name in state)


def test_a_foreign_scale_without_a_known_layout_is_not_dropped() -> None:
    state = {**nn.Linear(2, 2).state_dict(), "mu": torch.zeros(3)}
    with pytest.raises(AcclimateError, match="unknown to the model: mu"):
        fill(nn.Linear(2, 2), state)


def test_colour_scale() -> None:
    state = {"model.conv.weight": torch.zeros(3), "bn.running_mean": torch.zeros(3)}
    assert colour_scale(state) is None
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2023, 0.1994, 0.201])
    state |= {"normalize.mean": mean, "normalize.std": std}
    assert colour_scale(state) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201))


def test_a_robustbench_file_through_the_door(tmp_path: Path) -> None:
    theirs = shaken(TheirWide(40, 2))
    state = {f"module.{name}": value for name, value in theirs.state_dict().items()}
    torch.save({"model": "wrn", "epoch": 99, "state_dict": state}, tmp_path / "augmix.pt")
    loaded = load("acclimate:wrn-40-2", weights=tmp_path / "augmix.pt")
    assert_same_logits(theirs, loaded.model)
    assert "augmix.pt, without mean and std: check those above" in loaded.describe()


SCALED = {
    "acclimate:wrn-40-2": lambda: TheirWide(40, 2),
    "acclimate:wrn-26-1-bn": lambda: TheirDepth26(1, nn.BatchNorm2d),
}


@pytest.mark.parametrize("values", [1, 3])
@pytest.mark.parametrize("spec", SCALED)
def test_a_files_own_scale_becomes_the_preprocessing(
    tmp_path: Path, spec: str, values: int
) -> None:
    state = SCALED[spec]().state_dict()
    state |= {"mu": torch.zeros(1, values, 1, 1), "sigma": torch.ones(1, values, 1, 1)}
    torch.save(state, tmp_path / "scaled.pt")
    loaded = load(spec, weights=tmp_path / "scaled.pt")
    assert loaded.preprocessing is not None
    assert (loaded.preprocessing.mean, loaded.preprocessing.std) == ((0.0,) * 3, (1.0,) * 3)
    assert "with its mean and std" in loaded.describe()


@pytest.mark.parametrize(
    ("name", "value"),
    [("sigma", 0.0), ("sigma", -0.5), ("sigma", torch.nan), ("mu", torch.nan), ("mu", torch.inf)],
)
@pytest.mark.parametrize("spec", SCALED)
def test_a_scale_that_cannot_be_is_refused(
    tmp_path: Path, spec: str, name: str, value: float
) -> None:
    state = SCALED[spec]().state_dict() | {"mu": torch.zeros(3), "sigma": torch.ones(3)}
    state[name][1] = value
    torch.save(state, tmp_path / "scaled.pt")
    with pytest.raises(AcclimateError, match=r"std > 0 in the colour scale.*damaged"):
        load(spec, weights=tmp_path / "scaled.pt")


@pytest.mark.parametrize("name", ["ckpt.pth", "ckpt.t7"])
def test_a_kuangliu_file_through_the_door(tmp_path: Path, name: str) -> None:
    theirs = shaken(TheirResNet(TheirBasicBlock, [2, 2, 2, 2]))
    state = {f"module.{name}": value for name, value in theirs.state_dict().items()}
    torch.save({"net": state, "acc": 95.4, "epoch": 199}, tmp_path / name)
    loaded = load("acclimate:resnet18-cifar", weights=tmp_path / name)
    assert_same_logits(theirs, loaded.model)


def test_half_precision_files(tmp_path: Path) -> None:
    theirs = shaken(TheirWide(40, 2))
    torch.save(theirs.half().state_dict(), tmp_path / "half.pt")
    loaded = load("acclimate:wrn-40-2", weights=tmp_path / "half.pt")
    assert_same_logits(theirs.float(), loaded.model)


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "wrn.pt"
    torch.save(TheirWide(40, 2, classes=100).state_dict(), path)
    with pytest.raises(AcclimateError, match=r"for 100 classes, the model has 10.*num_classes=100"):
        load("acclimate:wrn-40-2", weights=path)
    assert load("acclimate:wrn-40-2", weights=path, num_classes=100).classes is None
    with pytest.raises(AcclimateError, match=r"do not fit this CifarResNet.*layer1\.0\.conv1"):
        load("acclimate:resnet18-cifar", weights=path)
    torch.save(TheirWide(16, 2).state_dict(), path)
    with pytest.raises(AcclimateError, match=r"do not fit this WideResNet.*missing.*blocks\."):
        load("acclimate:wrn-40-2", weights=path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(AcclimateError, match="damaged or cut short"):
        load("acclimate:wrn-40-2", weights=path)
