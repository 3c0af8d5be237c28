"""The paper's numbers per model (tab:hyperparams), and what unknown models get."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import acclimate
from acclimate.methods.registry import get_recipe
from acclimate.models import LoadedModel
from acclimate.parts.normalization import Source
from acclimate.presets import PRESETS, TUNED_ON, default_rate, find_preset, tuned_recipe


def tuned(recipe="rpl", options=None, *, model_name="mine", images=1000, **known):
    made = get_recipe(recipe)
    return tuned_recipe(made, options or {}, model_name=model_name, images=images, **known)


def net(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 8), norm, nn.Linear(8, 3))


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
    got, (note,) = tuned(recipe, model_name=model, images=TUNED_ON)
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


def test_the_class_of_a_users_module_picks_nothing():
    assert find_preset("rpl", model_name="ResNet50") is None
    assert find_preset("rpl", model_name="ResNeXt101_32x8d") is None
    assert tuned(model_name="ResNet50v1", images=TUNED_ON)[0] == tuned(images=TUNED_ON)[0]


def test_few_images_need_more_than_the_papers_numbers():
    name = "torchvision:resnet50"
    got, (note,) = tuned("ent", model_name=name, images=5_000, classes=1000)
    assert (got.optimizer.lr, got.epochs) == (5e-2, 2)
    assert note.startswith(
        f"the paper's preset for {name} is for 50,000 images: learning rate 0.05"
    )


@pytest.mark.parametrize(
    ("classes", "images", "lr", "epochs"),
    [
        (10, 200, 3e-2, 10),
        (10, 10_000, 3e-2, 5),
        (10, 1_000_000, 1.5e-3, 1),
        (1000, 200, 1e-1, 10),
        (1000, 5_000, 5e-2, 2),
        (1000, 50_000, 1e-2, 1),
        (None, 5_000, 5e-2, 2),
    ],
)
def test_new_statistics_bear_so_much_learning_whatever_the_number_of_images(
    classes, images, lr, epochs
):
    got, (note,) = tuned("ent", images=images, classes=classes, model=net(nn.BatchNorm1d(8)))
    assert (got.optimizer.lr, got.epochs) == (pytest.approx(lr), epochs)
    assert f"no preset for mine: learning rate {lr:g}" in note


@pytest.mark.parametrize(("recipe", "lr", "epochs"), [("rpl", 2e-3, 5), ("ent", 1e-3, 1)])
def test_without_new_statistics_learning_is_slow_and_short(recipe, lr, epochs):
    for norm, options in (
        (nn.BatchNorm1d(8), {"normalization": "source"}),
        (nn.GroupNorm(2, 8), {}),
        (nn.LayerNorm(8), {}),
    ):
        got, _ = tuned(recipe, options, images=10_000, classes=10, model=net(norm))
        assert (got.optimizer.lr, got.epochs) == (lr, epochs)


def test_the_sum_of_what_is_learnt_is_what_is_given():
    rate = default_rate(get_recipe("ent"), classes=10, new_statistics=True)
    for images in (5_000, 12_345, 50_000, 400_000):
        lr, epochs = rate.spread(images)
        assert lr * epochs * images == pytest.approx(rate.total, rel=0.35)


def test_what_the_user_names_stands_and_notes_say_what_is_used():
    got, notes = tuned(options={"optimizer.lr": 0.5})
    assert (got.optimizer.lr, got.epochs, notes) == (0.5, get_recipe("rpl").epochs, [])
    got, (note,) = tuned(options={"epochs": 3})
    assert (got.optimizer.lr, got.epochs) == (5e-2, 3)
    assert "learning rate 0.05 for batches of 128, 3 epoch(s)" in note
    got, (note,) = tuned(options={"optimizer.lr": 0.5}, model_name="timm:tf_efficientnet_l2")
    assert (got.optimizer.lr, got.batch_size, got.normalization) == (0.5, 8, Source())
    assert "learning rate 0.5 for batches of 8" in note


def test_naming_the_optimiser_keeps_a_rate_that_suits_it():
    got, (note,) = tuned(options={"optimizer": "sgd", "optimizer.momentum": 0})
    assert (got.optimizer.lr, got.optimizer.momentum) == (5e-2, 0)
    got, (note,) = tuned(options={"optimizer": "adam"})
    assert (type(got.optimizer).__name__, got.optimizer.lr) == ("Adam", 1e-3)
    assert "learning rate 0.001" in note


def test_a_recipe_with_its_own_rate_and_one_that_learns_nothing_are_left_alone():
    dino = get_recipe("dino")
    assert tuned_recipe(dino, {}, model_name="torchvision:resnet50", images=10) == (dino, [])
    assert tuned("bn") == (get_recipe("bn"), [])


def test_the_rate_follows_the_batch_size_with_a_note():
    model = LoadedModel(name="torchvision:resnet50", model=net(nn.BatchNorm1d(8)))
    images = torch.rand(40, 1, 2, 2)

    def notes(**options):
        return acclimate.adapt(model, images, "ent", progress=False, **options).notes

    preset, scaled = notes(batch_size=32)
    assert "preset" in preset
    assert scaled == (
        "learning rate 0.03 holds for batches of 128; scaled linearly to 0.0075 for batches of 32"
    )
    assert "scaled linearly to 0.009375 for batches of 40" in notes()[1]  # fewer than a batch
    (note,) = notes(options={"batch_size": 40, "optimizer.lr": 0.01})
    assert "your learning rate 0.01 for batches of 40" in note
