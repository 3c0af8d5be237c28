"""compare(): recipes ranked on the same images, by labels or without."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import acclimate
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe
from acclimate.models.networks.digits import load_digits_model

IMAGES, LABELS = (part[:300] for part in digits("held-out"))
BLURRED = corrupt(IMAGES, "gaussian_blur", 4, preset="cifar", seed=0)
QUICK = get_recipe("ent", {"name": "quick", "epochs": 1})


def compare(recipes=("none", "bn", QUICK), *, data=BLURRED, model=None, **options):
    settings = {"progress": False, "speed": "exact"} | options
    return acclimate.compare(model or load_digits_model(), data, recipes, **settings)


def rows(found) -> dict:
    return {row.recipe: row for row in found.recipes}


def test_without_labels_the_estimate_ranks():
    found = compare()
    assert (found.by, found.labelled, found.images) == ("estimate", 0, 300)
    values = [row.estimated.value for row in found.recipes]
    assert values == sorted(values)
    assert found.recipes[-1].recipe == "none"
    assert found.recipes[-1].apart
    assert found.best in ("bn", "quick")
    assert all(row.error is None and row.gain is None for row in found.recipes)
    assert "lowest estimated error" in found.conclusion


def test_a_hundred_labels_rank_with_intervals():
    some = torch.from_numpy(LABELS).long()
    some[100:] = -1
    found = compare(labels=some)
    assert (found.by, found.labelled) == ("labels", 100)
    for name, row in rows(found).items():
        recipe = QUICK if name == "quick" else name
        single = acclimate.adapt(
            load_digits_model(), BLURRED, recipe, labels=some, progress=False, speed="exact"
        )
        assert row.error.value == pytest.approx(single.error_after)
        assert row.error.low < row.error.value < row.error.high
        assert row.error.images == 100
        if name != "none":
            assert row.gain.value == pytest.approx(single.error_before - single.error_after)
    assert rows(found)["bn"].gain.low > 0
    assert rows(found)["none"].gain is None


def test_each_recipe_is_returned_as_adapt_would_return_it():
    images, labels = digits("held-out")
    found = rows(compare(["bn", "ent", "none"], data=images[labels == 1]))
    assert found["ent"].verdict == "refused"
    assert found["ent"].estimated == found["none"].estimated
    assert found["ent"].changed == 0


def test_the_cost_is_there():
    found = rows(compare())
    assert found["none"].passes < found["bn"].passes < found["quick"].passes
    assert all(row.seconds >= 0 for row in found.values())


def test_runs_are_kept_and_read_again(tmp_path):
    first = compare(out=tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"none", "bn", "quick", "comparison.json"}
    assert (tmp_path / "quick/model.safetensors").is_file()
    stored = json.loads((tmp_path / "comparison.json").read_text())
    assert stored["best"] == first.best
    assert compare(out=tmp_path) == first
    more = compare(["none", "bn", QUICK, "rpl"], out=tmp_path)
    assert rows(more)["none"].seconds == rows(first)["none"].seconds
    labelled = compare(out=tmp_path, labels=LABELS)  # labels that came later
    assert labelled.by == "labels"


def test_recipes_that_do_not_fit_the_model_are_named():
    torch.manual_seed(0)
    group = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    )
    images = torch.from_numpy(BLURRED)[:, None].float() / 255
    found = compare(["bn", "none"], data=images, model=group)
    assert [(row.recipe, row.verdict) for row in found.recipes][1] == ("bn", "unfit")
    assert "only changes batch-norm statistics" in str(found)
    with pytest.raises(AcclimateError, match="only changes batch-norm statistics"):
        compare(["bn"], data=images, model=group)


def test_few_images_cannot_be_ranked_without_labels():
    found = compare(["none", "bn"], data=BLURRED[:20])
    assert "cannot be estimated" in found.conclusion
    assert "label some images" in found.conclusion


def test_neither_the_model_nor_its_statistics_change():
    model = load_digits_model()
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    compare(model=model)
    after = model.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize(
    ("recipes", "said"),
    [
        ("ent", "expected a list of recipes"),
        ([], "expected a list of recipes"),
        (["ent", "ent"], "got ent twice"),
        (["rlp"], "did you mean 'rpl'"),
    ],
)
def test_mistakes(recipes, said):
    with pytest.raises(AcclimateError, match=said):
        compare(recipes)


def test_another_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(AcclimateError, match="holds no comparison"):
        compare(out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
