"""Which parameters learn, in every kind of network."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models.libraries import import_torchvision
from acclimate.models.outputs import find_classifier
from acclimate.parts.adapters import transformer_sublayers
from acclimate.parts.selectors import Adapters, All, LastLayer, Linear, NormAffine
from nets import bn_net, gn_net, images, tiny_vit


def timm_layer(name: str, channels: int) -> nn.Module:
    import_torchvision()
    import timm.layers

    layer: nn.Module = getattr(timm.layers, name)(channels)
    return layer


def torchvision_model(name: str, **options: Any) -> nn.Module:
    net: nn.Module = getattr(import_torchvision().models, name)(weights=None, **options)
    return net


def timm_model(name: str) -> nn.Module:
    import_torchvision()
    import timm

    net: nn.Module = timm.create_model(name, num_classes=7)
    return net


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm2d(4),
        nn.BatchNorm3d(4),
        nn.SyncBatchNorm(4),
        nn.GroupNorm(2, 4),
        nn.LayerNorm(4),
        nn.LayerNorm([4, 2]),
        nn.InstanceNorm1d(4, affine=True),
        nn.InstanceNorm2d(4, affine=True),
        nn.InstanceNorm3d(4, affine=True),
        timm_layer("BatchNormAct2d", 4),
        timm_layer("GroupNormAct", 32),
        timm_layer("LayerNorm2d", 4),
    ],
    ids=lambda norm: type(norm).__name__,
)
def test_affine_takes_scale_and_shift_of_every_normalisation_layer(norm: nn.Module) -> None:
    net = nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 4))
    assert NormAffine().names(net) == ["1.weight", "1.bias"]


def test_affine_takes_other_libraries_norms_by_name_and_shape() -> None:
    class RMSNormOfMine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

    class NormalizedEmbedding(nn.Module):  # a name is not enough
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

    net = nn.Sequential(RMSNormOfMine(), NormalizedEmbedding())
    assert NormAffine().names(net) == ["0.weight"]


def test_resnet50_has_53120_affines() -> None:
    net = torchvision_model("resnet50")
    parameters = dict(net.named_parameters())
    assert sum(parameters[n].numel() for n in NormAffine().names(net)) == 53_120


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(192, 5)),
        nn.Sequential(nn.InstanceNorm2d(3), nn.Flatten(), nn.Linear(192, 5)),
        nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.Flatten(), nn.Linear(192, 5)),
    ],
)
def test_a_model_without_affines_is_refused_with_the_reason(net: nn.Module) -> None:
    with pytest.raises(AcclimateError, match=r"no normalisation layers .* selector=last-layer"):
        Learner(net, get_recipe("ent"))


@pytest.mark.parametrize(
    ("net", "classifier"),
    [
        (torchvision_model("resnet18"), "fc"),
        (torchvision_model("squeezenet1_1"), "classifier.1"),
        (torchvision_model("mobilenet_v3_small"), "classifier.3"),
        (torchvision_model("densenet121"), "classifier"),
        (timm_model("resnet10t"), "fc"),
        (timm_model("convnext_atto"), "head.fc"),
        (timm_model("efficientnet_b0"), "classifier"),
        (timm_model("resnetv2_50x1_bit"), "head.fc"),
        (tiny_vit(), "head"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_last_layer_is_the_classifier(net: nn.Module, classifier: str) -> None:
    assert find_classifier(net)[0] == classifier
    assert LastLayer().names(net) == [f"{classifier}.weight", f"{classifier}.bias"]


def test_a_model_without_a_classifier_is_refused() -> None:
    with pytest.raises(AcclimateError, match="found no linear layer in Sequential"):
        Learner(nn.Sequential(nn.Conv2d(3, 4, 3)), get_recipe("ent", {"selector": "last-layer"}))


def test_linear_takes_linear_layers_and_attentions_own() -> None:
    vit = _tv_vit()
    names = Linear().names(vit)
    block = "encoder.layers.encoder_layer_0"
    assert f"{block}.self_attention.in_proj_weight" in names
    assert f"{block}.self_attention.out_proj.weight" in names
    assert f"{block}.mlp.0.weight" in names
    assert "heads.head.weight" in names
    assert not [n for n in names if "ln" in n or "conv_proj" in n or "pos_embedding" in n]


def _tv_vit() -> nn.Module:
    torch.manual_seed(0)
    net: nn.Module = import_torchvision().models.VisionTransformer(
        image_size=16,
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=16,
        num_classes=5,
    )
    with torch.no_grad():  # torchvision starts the head at zero, which hides everything
        net.heads.head.weight.normal_()
    return net.eval()


def test_linear_refuses_a_model_without_linear_layers() -> None:
    with pytest.raises(AcclimateError, match="no linear layers; choose selector=affine"):
        Linear().check(nn.Sequential(nn.Conv2d(3, 4, 3)))


def test_all_takes_everything() -> None:
    net = bn_net()
    assert All().names(net) == [name for name, _ in net.named_parameters()]


@pytest.mark.parametrize("selector", ["affine", "last-layer", "linear", "all"])
@pytest.mark.parametrize("make", [bn_net, gn_net])
def test_exactly_the_selected_parameters_move(selector: str, make: Any) -> None:
    net = make()
    before = copy.deepcopy(net.state_dict())
    learner = Learner(net, get_recipe("ent", {"selector": selector, "optimizer.lr": 0.1}))
    learner.step(images(8))
    moved = {n for n, v in net.state_dict().items() if not torch.equal(v, before[n])}
    assert moved
    assert moved <= set(learner.learning)
    if selector != "all":  # biases before a batch norm have no gradient
        assert moved == set(learner.learning)


# Adapters


@pytest.mark.parametrize("make", [tiny_vit, _tv_vit], ids=["timm", "torchvision"])
class TestAdapters:
    def learner(self, net: nn.Module, **options: Any) -> Learner:
        options = {"selector": "adapters", "selector.width": 3, "optimizer.lr": 0.5, **options}
        return Learner(net, get_recipe("ent", options))

    def test_they_start_as_the_identity_and_keep_the_models_keys(self, make: Any) -> None:
        net, x = make(), images(4, size=16)
        keys = set(net.state_dict())
        with torch.no_grad():
            expected = net(x)
        learner = self.learner(net)
        assert torch.equal(learner.predict(x), expected)
        added = set(net.state_dict()) - keys
        assert keys < set(net.state_dict())
        assert len(added) == 4 * len(transformer_sublayers(net)) == 16
        assert all(".acclimate_adapter." in name for name in added)

    def test_they_and_the_norms_learn_and_nothing_else(self, make: Any) -> None:
        net, x = make(), images(4, size=16)
        learner = self.learner(net)
        before = {k: v.clone() for k, v in net.state_dict().items()}
        for _ in range(3):
            learner.step(x)
        moved = {k for k, v in net.state_dict().items() if not torch.equal(v, before[k])}
        assert any(".acclimate_adapter.up" in k for k in moved)
        assert any(".acclimate_adapter.down" in k for k in moved)
        assert all(".acclimate_adapter." in k or "norm" in k or "ln" in k for k in moved)

    def test_a_model_with_adapters_can_be_copied(self, make: Any) -> None:
        net, x = make(), images(4, size=16)
        learner = self.learner(net)
        learner.step(x)
        learner.release()
        twin = copy.deepcopy(net)
        assert torch.equal(twin(x), net(x))
        with torch.no_grad():
            for name, p in twin.named_parameters():
                if ".acclimate_adapter.up.bias" in name:
                    p.add_(torch.arange(len(p)) / 3)
        assert not torch.allclose(twin(x), net(x))  # its own adapters, not the first one's

    def test_adapting_twice_learns_on_with_the_same_adapters(self, make: Any) -> None:
        net, x = make(), images(4, size=16)
        first = self.learner(net)
        first.step(x)
        expected = first.predict(x)
        first.release()
        keys = set(net.state_dict())
        second = self.learner(net, **{"selector.width": 5})
        assert set(net.state_dict()) == keys
        assert torch.equal(second.predict(x), expected)

    def test_a_separate_teacher_has_adapters_of_its_own(self, make: Any) -> None:
        net, x = make(), images(4, size=16)
        options = {"teacher": "frozen", "objective": "cross-entropy"}
        learner = self.learner(net, **options, **{"objective.teacher_temperature": 0.0})
        seen: list[Tensor] = []
        for _ in range(3):
            learner.step(x)
            weights = learner.states["teacher"].tensors
            seen.append(learner.forward(x, weights=weights, learning=False).logits)
        torch.testing.assert_close(seen[0], seen[-1])


def test_adapters_refuse_a_network_without_transformer_blocks() -> None:
    with pytest.raises(AcclimateError, match=r"no transformer blocks .* selector=affine"):
        Learner(bn_net(), get_recipe("ent", {"selector": "adapters"}))


def test_adapters_need_a_width() -> None:
    with pytest.raises(AcclimateError, match="expected width >= 1, got 0"):
        Adapters(width=0)
