"""The paper's numbers per model (tab:hyperparams), and what unknown models get."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import acclimate
from acclimate.methods.registry import get_recipe
from acclimate.models import LoadedModel
from acclimate.parts.normalization import Source
from acclimate.presets import PRESETS, default_epochs, default_lr, find_preset, tuned_recipe


def tuned(recipe="rpl", options=None, *, model_name="mine", images=1000):
    return tuned_recipe(get_recipe(recipe), options or {}, model_name=model_name, images=images)


@pytest.mark.parametrize(
    ("model", "recipe", "lr", "batch_size", "epochs"),
    [
        ("torchvision:resnet50", "ent", 1e-3, 128, 1),
        ("torchvision:resnet50@IMAGENET1K_V1", "rpl", 1e-3, 128, 5),
        ("timm:resnet50.a1_in1k", "rpl", 1e-3, 128, 5),
        ("torchvision:resnext101_32x8d", "ent", 2.5e-4, 32, 1),
        ("timm:resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "ent", 2.5e-4, 32, 4),
        ("timm:resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "rpl", 2.5e-3, 32, 2),
        ("py:nets:resnext101_augmix", "rpl", 2.5e-4, 32, 4),
        ("timm:tf_efficientnet_l2.ns_jft_in1k", "ent", 4.6e-5, 8, 1),
        ("timm:tf_efficientnet_l2.ns_jft_in1k", "rpl", 4.6e-4, 8, 1),
        ("timm:resnetv2_50x1_bit.goog_in21k_ft_in1k", "rpl", 7.5e-4, 96, 2),
    ],
)
def test_the_papers_models_get_the_papers_numbers(model, recipe, lr, batch_size, epochs):
    got, (note,) = tuned(recipe, model_name=model)
    assert (got.optimizer.lr, got.batch_size, got.epochs) == (lr, batch_size, epochs)
    assert note.startswith(f"the paper's preset for {model}")
    assert f"learning rate {lr:g}" in note


def test_other_models_and_other_recipes_have_no_preset():
    assert find_preset("rpl", model_name="timm:resnet18.a1_in1k") is None
    assert find_preset("rpl", model_name="timm:wide_resnet101_2") is None
    assert find_preset("hard", model_name="torchvision:resnet50") is None


def test_every_preset_is_found_by_a_name_that_fits_its_first_pattern():
    for preset in PRESETS:
        name = preset.models[0].replace("*", "")
        assert find_preset(preset.recipe, model_name=f"timm:{name}") == preset


def test_efficientnet_l2_leaves_the_statistics_alone_unless_asked():
    name = "timm:tf_efficientnet_l2.ns_jft_in1k"
    assert tuned(model_name=name)[0].normalization == Source()
    other, _ = tuned(options={"normalization": "mixture"}, model_name=name)
    assert type(other.normalization).__name__ == "Mixture"


@pytest.mark.parametrize(
    ("images", "lr", "epochs"),
    [(2, 1e-2, 50), (1_000, 1e-2, 25), (5_000, 1e-2, 5), (50_000, 1e-3, 5), (500_000, 1e-4, 5)],
)
def test_unknown_models_get_a_rate_and_epochs_by_the_number_of_images(images, lr, epochs):
    assert default_lr(images) == pytest.approx(lr)
    assert default_epochs(5, images) == epochs
    got, (note,) = tuned(images=images)
    assert (got.optimizer.lr, got.epochs) == (pytest.approx(lr), epochs)
    assert f"no preset for mine: learning rate {lr:g}" in note


def test_what_the_user_names_stands_and_notes_say_what_is_used():
    got, notes = tuned(options={"optimizer.lr": 0.5})
    assert (got.optimizer.lr, got.epochs, notes) == (0.5, get_recipe("rpl").epochs, [])
    got, (note,) = tuned(options={"epochs": 3})
    assert (got.optimizer.lr, got.epochs) == (1e-2, 3)
    assert "learning rate 0.01 for batches of 128, 3 epoch(s)" in note
    got, (note,) = tuned(options={"optimizer.lr": 0.5}, model_name="timm:tf_efficientnet_l2")
    assert (got.optimizer.lr, got.batch_size, got.normalization) == (0.5, 8, Source())
    assert "learning rate 0.5 for batches of 8" in note


def test_naming_the_optimiser_keeps_a_rate_that_suits_it():
    got, (note,) = tuned(options={"optimizer": "sgd", "optimizer.momentum": 0})
    assert (got.optimizer.lr, got.optimizer.momentum) == (1e-2, 0)
    got, (note,) = tuned(options={"optimizer": "adam"})
    assert (type(got.optimizer).__name__, got.optimizer.lr) == ("Adam", 1e-3)
    assert "learning rate 0.001" in note


def test_a_recipe_with_its_own_rate_and_one_that_learns_nothing_are_left_alone():
    dino = get_recipe("dino")
    assert tuned_recipe(dino, {}, model_name="torchvision:resnet50", images=10) == (dino, [])
    assert tuned("bn") == (get_recipe("bn"), [])


def test_the_rate_follows_the_batch_size_with_a_note():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    model = LoadedModel(name="torchvision:resnet50", model=net)
    images = torch.rand(40, 1, 2, 2)

    def notes(**options):
        return acclimate.adapt(model, images, "ent", progress=False, **options).notes

    preset, scaled = notes(batch_size=32)
    assert "preset" in preset
    assert scaled == (
        "learning rate 0.001 holds for batches of 128; scaled linearly to 0.00025 for batches of 32"
    )
    assert "scaled linearly to 0.0003125 for batches of 40" in notes()[1]  # fewer than a batch
    assert notes(options={"batch_size": 40, "optimizer.lr": 0.01}) == [
        "the paper's preset for torchvision:resnet50: your learning rate 0.01 for batches of 40, "
        "1 epoch(s) over 40 images"
    ]
