"""What README and docs show must run."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

import acclimate
from acclimate.data import list_datasets
from acclimate.data.corruptions import TEST, corruptions
from acclimate.methods.registry import RECIPES, list_recipes
from acclimate.models.checkpoints import checkpoints
from acclimate.parts.base import PARTS
from nets import bn_net
from pages import pages

ROOT = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def words_of(page: str) -> str:
    """A page in one line, however it is broken."""
    return " ".join((ROOT / page).read_text().split())


def stored_results(name: str) -> Any:
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())


def test_the_example_of_an_own_method_runs():
    source = next(b for b in blocks("docs/methods.md") if "register_recipe" in b)
    assert len([line for line in source.splitlines() if line.strip()]) <= 20
    try:
        exec(compile(source, "docs/methods.md", "exec"), {})
        data = torch.rand(48, 3, 8, 8)
        result = acclimate.adapt(
            bn_net(), data, "margin", options={"objective.power": 2}, progress=False
        )
        assert result.recipe.objective.power == 2
        assert result.history.epochs[0].before_update.loss is not None
        assert acclimate.Stream(bn_net(), "margin")(data[:8]).shape == (8, 5)
    finally:
        RECIPES._entries.pop("margin", None)
        PARTS["objective"]._entries.pop("margin", None)


def test_the_page_of_parts_lists_every_part():
    page = (ROOT / "docs/reference/parts.md").read_text()
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", page, flags=re.MULTILINE))
    for slot in PARTS:
        listed = set(re.findall(r"`([a-z0-9-]+)`", rows[slot]))
        assert listed == set(PARTS[slot].names()), slot


@pytest.mark.parametrize("name", ["step", "step_cpu_bf16"])
def test_the_speed_of_a_step_is_the_measured_one(name):
    stored = stored_results(name)
    auto = next(row for row in stored["rows"] if row["what"] == "auto")
    page = words_of("docs/how-a-step-works.md")
    assert (auto["model"], auto["batch"]) == ("wrn-40-2", 200)
    ratio = f"{auto['ratio_to_eager']:.2f}"
    assert f"{name}.json`) the step runs at {ratio} times the rate of the eager one" in page


def test_the_difference_a_faster_run_makes_is_the_measured_one():
    stored = stored_results("same_answer")
    page = words_of("docs/how-a-step-works.md")
    mean, error = stored["mean_difference"], stored["standard_error"]
    assert f'`speed="max"` ends {mean:.3f} ± {error:.3f} points from `speed="exact"`' in page
    differences = {True: [], False: []}
    for row in stored["rows"]:
        differences["wrn-40-2" in row["model"]].append(abs(row["difference"]))
    assert f"no mean of three seeds is more than {max(differences[True]):.2f} points apart" in page
    assert f"they are up to {max(differences[False]):.2f} points apart" in page


def test_tables_in_pages_are_those_of_the_stored_results(capsys):
    made = runpy.run_path(str(ROOT / "benchmarks" / "page_tables.py"))
    assert made["main"](["--check"]) == 0, capsys.readouterr().out


def test_the_verdicts_on_the_photos_are_the_stored_ones():
    stored = stored_results("photos")
    page = words_of("docs/measured.md")

    def refused(model):
        return [
            row["error"] > row["unadapted"]
            for row in stored
            if (row["model"], row["recipe"], row["verdict"]) == (model, "bn", "harmful")
            and row["severity"] is not None
        ]

    lite, residual = map(
        refused, ("py:photo_models:efficientnet_lite0", "py:photo_models:resnet50")
    )
    words = f"on {len(lite)} of the 30 shifts, {sum(lite)} of them rightly, and for the ResNet-50"
    assert f"{words} on {len(residual)}, wrongly" in page
    assert not any(residual)


def test_what_group_norm_gains_where_it_gains_is_the_measured():
    noises = {"gaussian_noise", "impulse_noise"}
    page = words_of("docs/measured.md")

    def mean(recipe, weights=None, *, without):
        found = [
            row["error"]
            for row in stored_results("cifar10c")
            if row["model"].startswith("acclimate:wrn-26-2-gn") and row["weights"] == weights
            if (row["recipe"], row["seed"]) == (recipe, 0) and "selector" not in row["options"]
            if row["corruption"] not in without
        ]
        assert len(found) == 5 * (15 - len(without))
        return sum(found) / len(found)

    published = runpy.run_path(str(ROOT / "benchmarks" / "page_tables.py"))["published"]

    def printed(recipe):
        model, others = "acclimate:wrn-26-2-gn-cifar10", set(TEST) - noises
        return fmean(published(model, recipe, shift=shift) for shift in others)

    before, after = (
        f"{mean(recipe, without=noises):.1f}, {printed(recipe):.1f}".split(", ")
        for recipe in ("none", "ent")
    )
    assert f"({before[0]} → {after[0]}, theirs {before[1]} → {after[1]})" in page
    weaker = [mean(recipe, "80-epochs.safetensors", without=()) for recipe in ("none", "ent")]
    better = [mean(recipe, without=()) for recipe in ("none", "ent")]
    assert f"{weaker[0]:.1f} % on these, and ENT ends at {weaker[1]:.1f}." in page
    gains = [weak - strong for weak, strong in zip(weaker, better, strict=True)]
    assert f"take {gains[0]:.1f} points off before and {gains[1]:.1f} after learning" in page


def test_reductions_with_the_statistics_of_batches_are_the_measured_ones():
    stored = stored_results("cifar10c")
    page = words_of("docs/measured.md")

    def reduction(model):
        own = [row for row in stored if row["model"] == model and row["seed"] == 0]
        before = [row["online"] for row in own if row["recipe"] == "bn"]
        after = [row["after_epoch"][-1] for row in own if row["recipe"] == "ent"]
        assert len(before) == len(after) == 75
        return f"{100 * (1 - sum(after) / sum(before)):.1f} %"

    names = ("wrn-26-2-bn-cifar10", "wrn-40-2-augmix-cifar10")
    first, second = (reduction(f"acclimate:{name}") for name in names)
    assert f"before and after, ours are {first} and {second}" in page


def test_reductions_from_small_batches_and_by_severity_are_the_measured_ones():
    page = words_of("docs/measured.md")
    names = ("acclimate:wrn-26-2-bn-cifar10", "acclimate:wrn-40-2-augmix-cifar10")

    def mean(model, recipe, *severities):
        return fmean(
            row["error"]
            for row in stored_results("cifar10c")
            if (row["model"], row["recipe"], row["seed"]) == (model, recipe, 0)
            and row["severity"] in severities
        )

    def of_batches(model, size):
        """On all images, by what statistics of all of them leave on those and on some."""
        own = [row for row in stored_results("statistics") if row["model"] == model]
        there = [row for row in own if row["options"]["batch_size"] == size]
        scale = mean(model, "bn", 1, 2, 3, 4, 5) / fmean(row["error"] for row in there)
        return scale * fmean(row["online"] for row in there)

    after = [mean(model, "ent", 1, 2, 3, 4, 5) for model in names]
    assert f"statistics of all images, {after[0]:.1f} and {after[1]:.1f}" in page
    (a, b), (c, d) = (
        [f"{100 * (1 - error / of_batches(model, size)):.0f} %" for size in (16, 32)]
        for model, error in zip(names, after, strict=True)
    )
    assert f"it is {a} and {b} for the first network, {c} and {d} for the second" in page
    (e, f), (g, h) = (
        [f"{100 * (1 - mean(m, 'ent', severity) / mean(m, 'bn', severity)):.0f} %" for m in names]
        for severity in (5, 1)
    )
    assert f"even there learning takes off {e} and {f};" in page
    assert f"at severity 1 it is {g} and {h.replace('-', '−')}." in page


def test_the_runs_that_differ_in_nothing_are_the_measured_ones():
    stored = stored_results("ablations")
    usual = {"optimizer.lr": 0.03, "epochs": 5, "objective.q": 0.8, "teacher": "instant"}
    usual |= {"selector": "affine", "batch_size": 128}
    errors = {}
    for row in stored:
        if row["recipe"] == "rpl" and all(usual[k] == v for k, v in row["options"].items()):
            errors.setdefault(json.dumps(row["options"]), []).append(row["error"])
    *most, last = (f"{sum(each) / len(each):.1f}" for each in sorted(errors.values(), key=sum))
    page = words_of("docs/measured.md")
    assert f"with all else at its default: {', '.join(most)} and {last}." in page


def test_the_cost_of_a_step_in_forward_passes_is_the_measured_one():
    stored = stored_results("step_gpu")
    auto = next(r for r in stored["rows"] if (r["model"], r["what"]) == ("resnet50", "auto"))
    page = words_of("docs/how-a-step-works.md")
    assert f"costs {auto['cost_in_compiled_inference']:.2f} forward passes" in page
    readme = words_of("README.md")
    rate, ratio = f"{auto['images_per_second']:,.0f}", f"{auto['ratio_to_eager']:.2f}"
    assert f"{rate} images a second, {ratio} times plain PyTorch" in readme


def test_the_rate_at_which_images_come_is_the_measured_one():
    stored = stored_results("input")
    rates, ratios = stored["images per second"], stored["ratio to synthetic"]
    page = words_of("docs/how-a-step-works.md")
    for words in (
        f"the loop runs at {rates['synthetic']:,.0f} images/s",
        f"at {ratios['epoch 2']:.3f} of that, epoch 3 at {ratios['epoch 3']:.3f}",
        f"an epoch from the host's memory at {ratios['host']:.3f}",
        f"waits for the {stored['epoch 1 waits for the']}, {rates['epoch 1']:,.0f} images/s",
        f"({rates['decoding alone']:,.0f} with nothing else to do)",
    ):
        assert words in page


def test_every_recipe_is_on_the_page_of_methods():
    page = (ROOT / "docs/methods.md").read_text()
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    for recipe in list_recipes():
        assert f"`{recipe.name}`" in rows, recipe.name


def test_the_readme_shows_the_stored_run():
    stored = stored_results("demo")
    readme = (ROOT / "README.md").read_text()
    for recipe, error in stored["error"].items():
        row = re.search(rf"^\| `{recipe}`: .*? \| ([\d.]+) % \|", readme, flags=re.MULTILINE)
        assert row is not None
        assert float(row[1]) == pytest.approx(error, abs=0.05)


def test_the_readme_says_where_it_is_unclear():
    stored = stored_results("demo_draws")
    worst = stored["mean_and_std"][-1]
    assert worst["severity"] == 5
    readme = words_of("README.md")
    number = r"([\d.]+)"
    words = f"leave {number} % wrong, `ent` ends at {number} % and `rpl` at {number}"
    found = re.search(words, readme)
    for shown, recipe in zip(found.groups(), ("bn", "ent", "rpl"), strict=True):
        assert float(shown) == pytest.approx(worst[recipe][0], abs=0.051)


def test_the_tables_of_corruptions_are_the_stored_ones():
    report = runpy.run_path(str(ROOT / "benchmarks/corruptions.py"))
    page = (ROOT / "docs/corruptions.md").read_text()
    for table in report["TABLES"]:
        assert table() in page, table.__name__


def test_every_data_set_and_corruption_is_on_its_page():
    page = (ROOT / "docs/datasets.md").read_text()
    for record in list_datasets():
        assert f"`{record.name}`" in page
    page = (ROOT / "docs/corruptions.md").read_text()
    assert all(f"| {name} |" in page for name in corruptions())


def test_the_shipped_models_are_on_their_page():
    page = (ROOT / "docs/models.md").read_text()
    for name, record in checkpoints().items():
        assert f"| `acclimate:{name}` |" in page
        assert f"{record.error:.2f} % ({record.images:,} images" in page
        assert f"`{record.command}`" in page


def test_aims_that_were_missed_are_listed():
    page = (ROOT / "docs/models.md").read_text()
    jobs = json.loads((ROOT / "benchmarks/pretraining_jobs.json").read_text())
    runs = stored_results("pretraining")
    for name, job in jobs.items():
        errors = runs[name]["error"]
        reached = errors.get("target", errors["source"])["value"]
        if "aim" in job and reached > job["aim"]:
            assert f"| `{name}` | {job['aim']} | {reached:.2f} |" in page


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in pages()])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


PAGES = [ROOT / "benchmarks/NOTES.md", *pages()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_and_results_that_are_named_exist(page):
    for name in re.findall(
        r"(?<!data/)benchmarks/[\w/-]+\.(?:py|json|yaml|md)\b", page.read_text()
    ):
        assert (ROOT / name).is_file(), name
    for script, command in re.findall(r"benchmarks/(\w+\.py) ([a-z]+)\b", page.read_text()):
        text = (ROOT / "benchmarks" / script).read_text()
        if "add_subparsers" in text:
            assert re.search(rf"{script} {command}\b", text), command
