"""The paper's models: their records, and what happens with and without their files."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from acclimate.errors import AcclimateError
from acclimate.models import list_models, load, paper
from acclimate.models.libraries import import_torchvision
from acclimate.models.loading import outline
from acclimate.models.paper import PaperModel, find_record, paper_names
from acclimate.presets import find_preset

if importlib.util.find_spec("timm") is None:
    pytest.skip("needs timm", allow_module_level=True)

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
RECORDS = [find_record(name) for name in paper_names()]
FILES = [record for record in RECORDS if record.weights == "file"]


def page_table() -> str:
    """The table of docs/models.md, made of the data."""
    rows = [
        "| name | model | weights | licence | sha256 | clean error, % |",
        "|---|---|---|---|---|---|",
    ]
    for record in RECORDS:
        error = "" if record.clean_error is None else f"{record.clean_error:g}"
        hashes = ", ".join(f"`{start}…`" for start in record.sha256)
        weights = f"{record.weights}, [page]({record.page})"
        cells = [f"`paper:{record.name}`", record.title, weights, record.licence, hashes, error]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def write(path: Path, net: nn.Module, **around: Any) -> Path:
    """A file as the training scripts of this field write it."""
    tensors = {f"module.{name}": value for name, value in net.state_dict().items()}
    torch.save({"epoch": 1, "state_dict": tensors, **around}, path)
    return path


def test_every_model_the_paper_names_is_listed() -> None:
    variants = {"sin", "ant", "ant-sin", "augmix", "deepaug", "deepaug-augmix"}
    found = set(list_models("paper:resnet50*"))
    assert found == {"paper:resnet50", *(f"paper:resnet50-{each}" for each in variants)}
    assert len(list_models("paper:*")) == 17
    assert not any(name.startswith("paper:") for name in list_models("*"))


def test_the_page_shows_the_data() -> None:
    assert page_table() in PAGE.read_text(), f"put this into {PAGE.name}:\n{page_table()}"


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_records_are_whole_and_their_architectures_exist(record: PaperModel) -> None:
    assert re.fullmatch(r"[a-z0-9-]+", record.name)
    assert all(link.startswith("https://") for link in (record.page, *record.files))
    assert record.files
    assert all(re.fullmatch(r"[0-9a-f]{8}", start) for start in record.sha256)
    assert (record.clean_error is None) == (record.clean_error_from is None)
    made = outline(f"paper:{record.name}")
    assert made.name == f"paper:{record.name}"
    assert {p.device.type for p in made.model.parameters()} == {"meta"}
    assert made.classes is not None
    assert made.classes.ids is not None


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_the_preprocessing_is_that_of_the_library(record: PaperModel) -> None:
    if record.name == "vit-s16-dino":  # its authors resize to 256, timm to 248
        assert record.preprocessing.resize == 256
    else:
        assert record.preprocessing == outline(record.architecture).preprocessing


def test_hashes_and_clean_errors_are_those_torchvision_publishes() -> None:
    models = import_torchvision().models
    for record in (each for each in RECORDS if each.weights == "torchvision"):
        name, _, tag = record.architecture.removeprefix("torchvision:").partition("@")
        entry = models.get_model_weights(name)[tag]
        assert record.files == (entry.url,)
        assert f"-{record.sha256[0]}.pth" in entry.url
        accuracy = entry.meta["_metrics"]["ImageNet-1K"]["acc@1"]
        assert record.clean_error == pytest.approx(100 - accuracy, abs=0.06)


def test_timm_records_are_for_the_published_files() -> None:
    import timm

    for record in (each for each in RECORDS if each.weights == "timm"):
        config = timm.get_pretrained_cfg(record.architecture.removeprefix("timm:"))
        assert config.has_weights
        assert config.num_classes == 1000
        assert config.license == record.licence.lower()
        assert all(start in config.url for start in record.sha256)


def test_presets_are_found_under_the_name_of_the_record() -> None:
    for record in RECORDS:
        found = find_preset("rpl", model_name=f"paper:{record.name}")
        assert (found is None) == (record.preset is None), record.name
    ig = find_preset("rpl", model_name="paper:resnext101-ig-wsl")
    assert ig is not None
    assert (ig.lr, ig.epochs) == (2.5e-3, 2)


@pytest.mark.parametrize("record", FILES, ids=lambda record: record.name)
def test_without_its_file_the_message_says_what_to_get(record: PaperModel) -> None:
    with pytest.raises(AcclimateError) as caught:
        load(f"paper:{record.name}")
    for word in (record.page, record.files[-1], record.layout, "weights=FILE", "--weights FILE"):
        assert word is not None
        assert word in str(caught.value)


def test_a_missing_file_says_what_to_get(tmp_path: Path) -> None:
    with pytest.raises(
        AcclimateError, match=r"no weights file .*gone\.pth.*google-research/augmix"
    ):
        load("paper:resnet50-augmix", weights=tmp_path / "gone.pth")


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(AcclimateError, match="did you mean 'resnet50-augmix'"):
        load("paper:resnet50-augmx")
    with pytest.raises(AcclimateError, match="unknown paper model"):
        outline("paper:cake")


def test_without_a_network_the_published_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> Any:
        raise OSError("Name or service not known")

    import_torchvision()
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    with pytest.raises(AcclimateError, match=r"for paper:resnet18 .*--weights FILE.*f37072fd\.pth"):
        load("paper:resnet18")


def test_a_file_as_training_scripts_write_it(tmp_path: Path) -> None:
    source = import_torchvision().models.resnet50().eval()
    # AugMix's checkpoints name the architecture under "model", beside the state dict.
    path = write(tmp_path / "checkpoint.pth.tar", source, model="resnet50", best_acc1=0.77)
    loaded = load("paper:resnet50-augmix", weights=path)
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(loaded.model(images), source(images), rtol=0, atol=0)
    assert loaded.name == "paper:resnet50-augmix"
    assert loaded.source == str(path)  # no hash was published


def test_hashes_are_checked_before_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "mine.pth", import_torchvision().models.resnet18())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    loaded = load("paper:resnet18", weights=path)
    assert loaded.source == f"{path} (not the published file: its sha256 begins with {digest[:8]})"

    claims = path.rename(tmp_path / "resnet18-f37072fd.pth")
    with pytest.raises(AcclimateError, match=rf"got {digest[:8]}: .*Download it again from https"):
        load("paper:resnet18", weights=claims)

    entry = {**vars(find_record("resnet18")), "sha256": (digest[:8],)}
    monkeypatch.setattr(paper, "_records", lambda: {"resnet18": PaperModel(**entry)})
    assert "the published file by its sha256" in load("paper:resnet18", weights=claims).source


def test_dino_takes_backbone_and_classifier_from_a_folder(tmp_path: Path) -> None:
    import timm

    backbone = timm.create_model("vit_small_patch16_224.dino", pretrained=False).eval()
    torch.save(backbone.state_dict(), tmp_path / "dino_deitsmall16_pretrain.pth")
    with pytest.raises(AcclimateError, match=r"linearweights\.pth; check the path, or get the"):
        load("paper:vit-s16-dino", weights=tmp_path)
    classifier = nn.Module()
    classifier.linear = nn.Linear(4 * 384, 1000)
    write(tmp_path / "dino_deitsmall16_linearweights.pth", classifier, best_acc=77.0)

    loaded = load("paper:vit-s16-dino", weights=tmp_path)
    images = torch.randn(2, 3, 224, 224)
    tokens: list[torch.Tensor] = []  # what the last four blocks put out, seen from outside
    for block in backbone.blocks[-4:]:
        block.register_forward_hook(lambda _, __, out: tokens.append(backbone.norm(out)[:, 0]))
    with torch.no_grad():
        backbone(images)
        expected = classifier.linear(torch.cat(tokens, dim=1))
        torch.testing.assert_close(loaded.model(images), expected, rtol=1e-4, atol=1e-5)

    torch.save(loaded.model.state_dict(), tmp_path / "adapted.pth")
    again = load("paper:vit-s16-dino", weights=tmp_path / "adapted.pth")
    assert torch.equal(again.model.head.weight, classifier.linear.weight)


def test_the_data_file_is_plain_json_with_one_entry_a_name() -> None:
    entries = json.loads(Path(paper.__file__).with_name("paper_models.json").read_text())
    assert sorted(entry["name"] for entry in entries) == paper_names()
