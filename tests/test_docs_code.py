"""Every block of code on the site runs: Python from top to bottom of a page, and its commands."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import acclimate
from acclimate.cli import main
from acclimate.cli.adapt import UNCLEAR
from acclimate.cli.parser import build_parser
from acclimate.data.digits import digits
from acclimate.data.preprocessing import Preprocessing
from acclimate.methods.registry import RECIPES
from acclimate.models.libraries import import_timm, import_torchvision
from acclimate.models.record import LoadedModel
from acclimate.parts.base import PARTS
from pages import ROOT, blocks_of, commands_of, pages, run_python

STAND_INS = ("timm:", "torchvision:", "hf:", "paper:")
"""Models whose weights would be downloaded; a small network stands for each."""

MADE_HERE = ("docs/quick-start.md", "docs/tutorials/", "docs/how-to/")
"""Pages whose commands run; those of the others need data sets, and are read by the parser."""


def title(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def small_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder as pages assume it, and the names they use without making them."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    for number in range(24):
        image = random.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        path = tmp_path / "images" / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(path)

    own = acclimate.models.load

    def load(spec: str, **options: Any) -> LoadedModel:
        if not spec.startswith(STAND_INS) or Path(spec.partition(":")[2]).exists():
            return own(spec, **options)
        wants = Preprocessing(size=(32, 32))
        return LoadedModel(name="stand-in", model=small_network().eval(), preprocessing=wants)

    monkeypatch.setattr(acclimate.models, "load", load)
    known = {slot: dict(registry._entries) for slot, registry in PARTS.items()}
    recipes = dict(RECIPES._entries)
    yield tmp_path
    torch.set_num_threads(threads)
    RECIPES._entries.clear()
    RECIPES._entries.update(recipes)
    for slot, entries in known.items():
        PARTS[slot]._entries.clear()
        PARTS[slot]._entries.update(entries)


def given(page: Path, folder: Path) -> dict[str, Any]:
    """What a page takes for granted, before its first block."""
    names: dict[str, Any] = {}
    name = title(page)
    if name in ("README.md", "docs/index.md", "docs/practitioners.md"):
        (folder / "images").rename(folder / "photos")
        names["model"] = small_network().eval()
        names["camera"] = [np.zeros((4, 40, 40, 3), np.uint8), torch.rand(4, 3, 32, 32)]
    if name == "docs/index.md":
        wants = Preprocessing(size=(32, 32))
        names["model"] = LoadedModel(name="mine", model=small_network(), preprocessing=wants)
    if name == "docs/practitioners.md":
        from safetensors.torch import save_file

        rows = [f"{path.name},0" for path in sorted((folder / "photos").iterdir())]
        (folder / "hundred.csv").write_text("\n".join(["file,class", *rows]))
        (folder / "run").mkdir()
        save_file(names["model"].state_dict(), folder / "run/model.safetensors")
    if name == "docs/datasets.md":
        (folder / "data/CIFAR-10-C").mkdir(parents=True)
        images = np.zeros((50_000, 32, 32, 3), np.uint8)
        np.save(folder / "data/CIFAR-10-C/fog.npy", images)
        np.save(folder / "data/CIFAR-10-C/labels.npy", np.zeros(50_000, np.uint8))
    if name == "docs/experiments.md":
        (folder / "data/cifar10").mkdir(parents=True)
        plan = next(block.text for block in blocks_of(page) if block.kind == "yaml")
        (folder / "plan.yaml").write_text(plan)
        of_one = [line for line in plan.splitlines() if "rpl:" not in line]
        search = "\n".join(of_one).replace("[none, bn, ent, rpl]", "[ent]")
        (folder / "search.yaml").write_text(search)
    if name == "docs/how-to/from-tent.md":
        torch.manual_seed(0)
        names["network"] = small_network().eval()
        names["batches"] = torch.rand(3, 64, 3, 16, 16)
    if name == "docs/how-to/from-benchmarks.md":
        names["network"] = small_network().eval()
        names["loader"] = [(torch.rand(64, 3, 16, 16), torch.zeros(64).long()) for _ in range(2)]
    if name == "docs/how-to/streams.md":
        shifted, _ = digits("held-out", shifted=True)
        names["camera"] = [shifted[:64], shifted[64:128]]
    if name == "docs/how-to/data-from-other-libraries.md":
        names |= of_other_libraries(folder)
    return names


def of_other_libraries(folder: Path) -> dict[str, Any]:
    """What their objects read: folders, a shard, a classifier of transformers."""
    import_torchvision()
    transformers = pytest.importorskip("transformers")
    webdataset = pytest.importorskip("webdataset")
    for package in ("datasets", "lightning", "torchmetrics"):
        pytest.importorskip(package)
    write_digits(folder, count=40)
    with webdataset.TarWriter(str(folder / "shard-000.tar")) as out:
        for path in sorted((folder / "photos").iterdir()):
            out.write({"__key__": path.stem, "png": path.read_bytes(), "cls": 0})
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=10
    )
    timm = import_timm()
    return {
        "trained": timm.create_model("resnet10t", num_classes=10),
        "paths": sorted((folder / "photos").iterdir())[2:],
        "classifier": transformers.ResNetForImageClassification(config).eval(),
        "processor": transformers.ViTImageProcessor(size={"height": 32, "width": 32}),
    }


def write_digits(folder: Path, *, count: int) -> None:
    """Foggy digits in photos/, clear ones in digits/CLASS/."""
    images, labels = digits("held-out", shifted=True)
    clear, _ = digits("held-out")
    for number in range(count):
        for place, image in (("photos", images), (f"digits/{labels[number]}", clear)):
            (folder / place).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[number]).save(folder / place / f"{number:03}.png")


@pytest.mark.filterwarnings("ignore:.*read only once:acclimate.errors.AcclimateWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore:.*images are mostly noise:acclimate.errors.AcclimateWarning")
@pytest.mark.parametrize("page", pages(), ids=title)
def test_the_python_of_a_page_runs(page, world, monkeypatch):
    if not any(block.kind == "python" for block in blocks_of(page)):
        pytest.skip("has no Python")
    if title(page).startswith("docs/tutorials/"):
        for package in ("matplotlib", "pandas"):
            pytest.importorskip(package)
    module = ModuleType("page")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.setenv("MPLBACKEND", "agg")
    vars(module).update(given(page, world))
    assert run_python(page, vars(module)) > 0


@pytest.mark.parametrize("page", pages(), ids=title)
def test_the_commands_of_a_page_are_understood(page, capsys):
    parser = build_parser()
    for words in commands_of(page):
        try:
            parser.parse_args(words)
        except SystemExit:
            pytest.fail(f"acclimate {' '.join(words)}: {capsys.readouterr().err}")


RUN = [page for page in pages() if title(page).startswith(MADE_HERE) and [*commands_of(page)]]


@pytest.mark.parametrize("page", RUN, ids=title)
def test_the_commands_of_tutorials_and_guides_run(page, world, capsys):
    write_digits(world, count=120)
    for words in commands_of(page):
        status = main(words)
        assert status in (0, UNCLEAR), f"acclimate {' '.join(words)}: {capsys.readouterr().err}"


def test_a_page_is_read_as_it_is_shown(tmp_path):
    page = tmp_path / "page.md"
    python = "# A\n\n```python\nx = 1\n```\n\n"
    shell = "- b\n\n  ```bash\n  acclimate list \\\n      recipes  # all\n  ```\n\n"
    page.write_text(python + shell + "```{code-cell} python\n:tags: [a]\nx\n```\n")
    kinds = [(block.kind, block.line) for block in blocks_of(page)]
    assert kinds == [("python", 4), ("bash", 10), ("python", 15)]
    assert list(commands_of(page)) == [["list", "recipes"]]


def test_what_does_not_run_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        run_python(page, {})
    page.write_text("```python\n>>> 1 + 1\n3\n```\n")
    with pytest.raises(AssertionError, match="Expected"):
        run_python(page, {})
