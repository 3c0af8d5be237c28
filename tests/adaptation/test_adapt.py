"""adapt(): what goes in, what comes out, and what it must never touch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import acclimate
from acclimate.data import ClassList, corrupt
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.learner.learner import Learner
from acclimate.models import LoadedModel
from acclimate.models.networks.digits import digits_network, load_digits_model
from digit_runs import IMAGES, INPUT, LABELS, QUICK, adapt, same, weights


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    # uint8 images may reach the convolutions in another memory layout: equal but for rounding.
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


class LabelledImages(Dataset):
    def __len__(self) -> int:
        return len(INPUT)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return INPUT[index], int(LABELS[index])


# Data, however it comes.


@pytest.fixture(scope="module")
def reference():
    return adapt(labels=LABELS)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(INPUT, id="tensor"),
        pytest.param(INPUT.double(), id="float64"),
        pytest.param(INPUT.numpy(), id="array"),
        pytest.param(INPUT.numpy()[::-1][::-1], id="array-with-negative-strides"),
        pytest.param(INPUT.transpose(2, 3).contiguous().transpose(2, 3), id="not-contiguous"),
        pytest.param(TensorDataset(INPUT), id="dataset"),
        pytest.param(LabelledImages(), id="dataset-with-labels"),
        pytest.param(DataLoader(LabelledImages(), batch_size=7), id="loader"),
    ],
)
def test_the_same_images_give_the_same_model_however_they_come(data, reference):
    assert same(weights(adapt(data=data)), weights(reference))


@pytest.mark.parametrize("images", [IMAGES, torch.from_numpy(IMAGES)], ids=["array", "tensor"])
def test_uint8_images_are_normalised_by_the_models_own_record(images, reference):
    close(weights(adapt(data=images)), weights(reference))


@pytest.mark.parametrize("kind", ["npz", "npy", "folder"])
def test_files_give_the_same_model_as_arrays(kind, reference, tmp_path):
    path = tmp_path / f"digits.{kind}"
    if kind == "npz":
        np.savez(path, images=IMAGES, labels=LABELS)
    elif kind == "npy":
        np.save(path, IMAGES)
    else:
        path.mkdir()
        for index, image in enumerate(IMAGES):
            Image.fromarray(image).save(path / f"{index:03}.png")
    result = adapt(data=path)
    close(weights(result), weights(reference))
    assert (result.error_after is not None) == (kind == "npz")


def test_labels_score_and_never_teach(reference):
    unlabelled = adapt()
    wrong = adapt(labels=(LABELS + 1) % 10)
    assert same(weights(unlabelled), weights(reference))
    assert same(weights(wrong), weights(reference))
    assert unlabelled.error_after is None
    assert reference.error_after == 100 * np.mean(reference.predictions.numpy() != LABELS)
    assert wrong.error_after > reference.error_after
    assert wrong.verdict == unlabelled.verdict == reference.verdict


def test_labels_may_be_known_for_some_images_only():
    some = LABELS.copy()
    some[10:] = -1
    result = adapt(labels=some)
    assert result.history.final.labelled == 10
    assert result.error_after == 100 * np.mean(result.predictions.numpy()[:10] != LABELS[:10])


@pytest.mark.parametrize("count", [2, 3, 5, 33])
def test_sets_smaller_than_a_batch_and_remainders_of_one_work(count):
    result = adapt(data=INPUT[:count])
    assert result.predictions.shape == (count,)
    assert [record.before_update.images for record in result.history.epochs] == [count] * 2


def test_one_image_has_no_batch_statistics_and_is_refused_with_a_way_out():
    with pytest.raises(AcclimateError, match=r"one image has no batch statistics.*bn-prior"):
        adapt(data=INPUT[:1])
    with pytest.raises(AcclimateError, match="one image has no batch statistics"):
        adapt(batch_size=1)
    assert len(adapt(data=INPUT[:1], recipe="bn-prior", options={}).predictions) == 1


# Models, whatever they return.


class Returning(nn.Module):
    def __init__(self, wrap) -> None:
        super().__init__()
        self.net = load_digits_model().model
        self.wrap = wrap

    def forward(self, images: Tensor):
        return self.wrap(self.net(images))


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda logits: (logits, "more"), id="tuple"),
        pytest.param(lambda logits: {"logits": logits}, id="dict"),
        pytest.param(lambda logits: SimpleNamespace(logits=logits), id="object"),
    ],
)
def test_models_that_return_objects_learn_the_same(wrap, reference):
    result = adapt(Returning(wrap))
    assert same(result.model.net.state_dict(), weights(reference))
    assert torch.equal(result.predictions, reference.predictions)


def test_a_model_without_batch_norm_and_one_with_a_single_class_work():
    group = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    )
    assert adapt(group).history.statistics_gap == 0
    one = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 1))
    result = adapt(one)
    assert (result.verdict.word, result.predictions.unique().tolist()) == ("unchanged", [0])


def test_what_the_model_cannot_do_is_said_before_anything_is_written(tmp_path):
    out = tmp_path / "run"
    colour = torch.rand(8, 3, 8, 8)
    with pytest.raises(AcclimateError, match="failed on images of shape 1 × 3 × 8 × 8"):
        adapt(data=colour, out=out)
    with pytest.raises(AcclimateError, match="below the model's 10 classes, got 10"):
        adapt(load_digits_model().model, labels=LABELS + 1, out=out)
    with pytest.raises(AcclimateError, match=r"logits of shape images × classes, got \(1, 4\, 6"):
        adapt(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), out=out)
    with pytest.raises(AcclimateError, match=r"no normalisation layers.*selector=last-layer"):
        adapt(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), out=out)
    named = LoadedModel(name="m", model=load_digits_model().model, classes=ClassList(("a", "b")))
    with pytest.raises(AcclimateError, match=r"class names as the model has outputs \(10\), got 2"):
        adapt(named, out=out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "first"}, "unknown choice for keep 'first'"),
        ({"score": "never"}, "unknown choice for score 'never'"),
        ({"keep": "best", "score": "end"}, "it needs score='epochs'"),
        ({"guard": "rolback"}, "did you mean 'rollback'"),
        ({"recipe": "rlp"}, "did you mean 'rpl'"),
        ({"batch_size": 0}, "expected batch_size >= 1, got 0"),
        ({"seed": -1}, "expected a seed >= 0"),
        ({"device": "gpu"}, "cannot use the device 'gpu'"),
        ({"options": {"epochs": 0}}, "expected epochs >= 1, got 0"),
        ({"options": {"optimiser.lr": 1}}, "unknown option 'optimiser.lr'"),
        ({"model": "timm:resnet50"}, "expected a torch.nn.Module or a loaded model, got str"),
        ({"labels": [0, 1]}, "one label for each of the 150 images"),
        ({"data": torch.full((4, 1, 8, 8), float("nan"))}, "NaN"),
    ],
)
def test_mistakes_get_a_clear_message(options, message):
    with pytest.raises(AcclimateError, match=message):
        adapt(**options)


# The model returned is the plain model.


@pytest.mark.parametrize("recipe", ["none", "bn", "bn-prior", "ent", "hard", "soft", "rpl"])
def test_the_users_model_is_left_as_it_was(recipe):
    model = load_digits_model().model.train()
    model[0].weight.requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    flags = {n: p.requires_grad for n, p in model.named_parameters()}
    adapt(model, recipe=recipe, options={"epochs": 1})
    assert same(model.state_dict(), before)
    assert {n: p.requires_grad for n, p in model.named_parameters()} == flags
    assert all(module.training for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("normalization", ["source", "batch", "mixture", "running"])
def test_the_model_returned_is_the_plain_model(normalization):
    model = load_digits_model().model
    model[0].weight.requires_grad_(False)
    result = adapt(model, options={**QUICK, "normalization": normalization})
    returned = result.model
    assert type(returned) is type(model)
    assert list(returned.state_dict()) == list(model.state_dict())
    assert not same(returned.state_dict(), model.state_dict())
    assert [p.requires_grad for p in returned.parameters()] == [
        p.requires_grad for p in model.parameters()
    ]
    for module in returned.modules():
        assert not module.training
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert getattr(module, "track_running_stats", True)


@pytest.mark.parametrize("recipe", ["none", "bn", "bn-prior", "ent", "rpl-epoch"])
@torch.no_grad()
def test_predictions_are_those_of_the_plain_model_image_by_image(recipe):
    result = adapt(recipe=recipe, options={"epochs": 1})
    model = digits_network().eval()
    model.load_state_dict(result.model.state_dict(), strict=True)
    logits = torch.cat([model(image[None]) for image in INPUT])
    assert torch.equal(logits.argmax(dim=1), result.predictions)
    torch.testing.assert_close(logits.softmax(dim=1).amax(dim=1), result.confidence)


def test_only_what_was_selected_has_moved():
    source = load_digits_model().model.state_dict()
    moved = {k for k, v in weights(adapt()).items() if not torch.equal(v, source[k])}
    norms = {f"{i}.{k}" for i in (1, 4, 7) for k in ("weight", "bias")}
    statistics = {f"{i}.running_{k}" for i in (1, 4, 7) for k in ("mean", "var")}
    assert moved == norms | statistics


def test_in_place_means_the_users_own_model():
    model = load_digits_model().model
    assert adapt(model, inplace=True).model is model
    assert same(model.state_dict(), weights(adapt()))


# Seeds.


def test_the_seed_decides_everything_that_is_drawn(reference):
    assert same(weights(adapt()), weights(reference))
    assert not same(weights(adapt(seed=1)), weights(reference))


def test_unreadable_images_are_counted_and_left_out(tmp_path):
    for index, image in enumerate(IMAGES[:20]):
        Image.fromarray(image).save(tmp_path / f"{index:03}.png")
    (tmp_path / "007.png").write_bytes(b"not an image")
    with pytest.warns(AcclimateWarning, match="1 of 20 images cannot be read"):
        result = adapt(data=tmp_path)
    assert (result.skipped, len(result.predictions), "007.png" in result.names) == (1, 19, False)


def test_a_running_estimate_settles_and_is_what_is_returned():
    for recipe in ("bn", "ent"):
        result = acclimate.adapt(
            load_digits_model(),
            corrupt(digits("held-out")[0][:150], "gaussian_blur", 4, preset="cifar", seed=0),
            recipe,
            options={"normalization": "running"},
            labels=LABELS,
            progress=False,
        )
        assert result.history.statistics_gap < 0.02
        assert result.history.events == []
        assert result.error_after < result.error_before - 20


def test_a_recipe_of_the_users_own_is_taken_as_it_is():
    recipe = acclimate.get_recipe("rpl", {"epochs": 1})
    result = acclimate.adapt(load_digits_model(), IMAGES[:100], recipe, progress=False)
    assert len(result.history.epochs) == 1
    assert result.recipe == recipe


def test_a_model_in_double_precision_and_a_caller_in_inference_mode():
    model = load_digits_model().model.double()
    data = PREPROCESSING.normalize(torch.from_numpy(IMAGES[:64])[:, None])
    with torch.inference_mode():
        result = acclimate.adapt(model, data.double(), "ent", progress=False)
    assert result.model[0].weight.dtype == torch.float64


def test_statistics_alone_need_layers_that_keep_them():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    with pytest.raises(AcclimateError, match="only changes batch-norm statistics"):
        acclimate.adapt(net, torch.rand(8, 1, 8, 8), "bn", progress=False)


def test_an_interrupted_run_leaves_a_model_adapted_in_place_usable(monkeypatch):
    model = load_digits_model().model
    monkeypatch.setattr(Learner, "step", lambda self, images: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        acclimate.adapt(model, torch.rand(64, 1, 8, 8), "ent", inplace=True, progress=False)
    assert not any(m.training for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())


def test_the_cost_is_counted_in_forward_passes():
    options = {"options": {"epochs": 1}, "speed": "exact", "progress": False}
    bare = {**options, "guard": "off", "estimate": False, "score": "end"}
    none = acclimate.adapt(load_digits_model(), INPUT, "none", **bare)
    assert none.cost == 1  # the predictions
    learnt = acclimate.adapt(load_digits_model(), INPUT, "ent", **bare)
    assert learnt.cost == 3 + 1 + 1  # a step, the statistics, the predictions
    assert acclimate.adapt(load_digits_model(), INPUT, "ent", **options).cost > learnt.cost
