"""How far images are from what a model knows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import acclimate
from acclimate.data import open_images
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError
from acclimate.guard.drift import layer_drift
from acclimate.models.networks.digits import load_digits_model

IMAGES, LABELS = (part[:500] for part in digits("held-out"))
MODEL = load_digits_model()


def drift(images=IMAGES, model=MODEL, **options) -> acclimate.guard.drift.DriftReport:
    return acclimate.drift(model, images, progress=False, **options)


def foggy(severity: int) -> np.ndarray:
    return corrupt(IMAGES, "fog", severity, preset="cifar", seed=0)


def test_fog_is_further_the_thicker_it_is():
    distances = [drift(images).distance for images in (IMAGES, foggy(1), foggy(3), foggy(5))]
    assert distances == sorted(distances)
    assert distances[-1] > 3 * distances[0]


def test_every_norm_layer_is_there_in_order():
    layers = [name for name, m in MODEL.model.named_modules() if isinstance(m, nn.BatchNorm2d)]
    report = drift()
    assert [layer.name for layer in report.layers] == layers
    assert {layer.kind for layer in report.layers} == {"BatchNorm"}


def test_the_images_themselves_are_no_distance_from_themselves():
    report = drift(foggy(4), reference=foggy(4))
    assert report.distance == pytest.approx(0, abs=1e-6)
    assert report.reference_error == report.estimated_error
    assert drift(foggy(4), reference=IMAGES).distance > 0.1


@pytest.mark.parametrize("norm", [lambda: nn.GroupNorm(2, 8), lambda: nn.LayerNorm([8, 6, 6])])
def test_norms_without_statistics_need_a_reference(norm):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), norm(), nn.Flatten(), nn.Linear(288, 10))
    images = torch.from_numpy(np.float32(IMAGES[:, None]) / 255)
    alone = drift(images, net)
    assert (alone.layers, alone.distance) == ((), None)
    assert "name images it works on" in alone.advice
    assert drift(1 - images, net, reference=images).distance > 0.3


def test_few_classes_show_in_the_last_layers():
    two = drift(IMAGES[np.isin(LABELS, (0, 1))])
    assert two.classes_in_use < 3
    assert "--set normalization=source" in two.advice


def test_a_mended_camera_is_not_advised_to_adapt():
    assert "little to adapt to" in drift().advice
    assert "adapt" in drift(foggy(5)).advice


def test_it_prints_as_a_table_and_goes_into_json():
    report = drift(foggy(5))
    lines = str(report).splitlines()
    assert lines[0] == "acclimate:digits, 500 images"
    assert sum(line.startswith(report.layers[0].name) for line in lines) == 1
    assert any(line.startswith("estimated error ") for line in lines)
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["distance"] == report.distance
    assert plain["layers"][0]["name"] == report.layers[0].name


def test_neither_the_model_nor_its_statistics_change():
    before = {name: value.clone() for name, value in MODEL.model.state_dict().items()}
    drift(foggy(5))
    after = MODEL.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("options", [{"most": 0}, {"batch_size": 0}])
def test_mistakes(options):
    with pytest.raises(AcclimateError, match="expected most >= 1 and batch_size >= 1"):
        drift(**options)


def test_the_distances_alone_are_those_of_the_report():
    source = open_images(foggy(5), preprocessing=MODEL.preprocessing)
    assert tuple(layer_drift(MODEL.model, source)) == drift(foggy(5)).layers
