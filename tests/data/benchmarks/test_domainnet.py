"""ImageNet-D in DomainNet's layout: six domains, the folders a map knows, scored through it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from acclimate.bench import Store
from acclimate.bench.evaluate import EvaluationReport, evaluate_shifts
from acclimate.data import ImageSource
from acclimate.data.benchmarks import find_dataset, imagenet_d, missing_parts, open_dataset
from acclimate.data.benchmarks.imagenet_d import label_map
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.metrics import DOMAINS, mde
from acclimate.models import LoadedModel
from benchmarks_trees import TINY, class_folders, write_image

LABELS = label_map()
NAMES = sorted(LABELS.label_of_folder)
OTHERS = tuple(LABELS.left_out)


def open_tiny(
    root: Path, shift: str = "clipart", dataset: str = "imagenet-d", **options: object
) -> ImageSource:
    return open_dataset(
        dataset, root, shift=shift, **{"preprocessing": TINY, "progress": False, **options}
    )


def test_folders_are_labelled_by_their_class_and_scored_through_the_map(tmp_path):
    class_folders(tmp_path / "clipart", reversed(NAMES), each=2)
    source = open_tiny(tmp_path)
    assert len(source) == 362
    assert source.labels is not None
    assert set(source.labels.tolist()) == set(range(164))
    assert source.class_names == LABELS.names
    folders = [name.split("/")[0] for name in source.names]
    assert [LABELS.label_of_folder[name] for name in folders] == source.labels.tolist()
    logits = torch.zeros(2, 1000)
    logits[0, 207] = logits[1, 339] = 1  # a golden retriever; a sorrel
    assert source.scoring is not None
    assert source.scoring.predict(logits).tolist() == [LABELS.names.index("dog"), -1]


class ByBrightness(torch.nn.Module):
    """Dark images are sorrels, grey ones cellular telephones, bright ones dial telephones."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        bright = torch.bucketize(images.mean(dim=(1, 2, 3)), torch.tensor([-1.0, 1.0]))
        return torch.nn.functional.one_hot(torch.tensor([339, 487, 528])[bright], 1000).float()


def test_both_phones_are_one_class_in_the_released_map_alone(tmp_path):
    curated = label_map("imagenet-d-curated")
    folders = sorted({*NAMES, *curated.label_of_folder})
    assert len(folders) == 182
    for domain in DOMAINS:
        class_folders(tmp_path / domain, folders)  # all grey
        write_image(tmp_path / domain / "telephone" / "bright.jpg", 255)
        write_image(tmp_path / domain / "horse" / "dark.jpg", 0)
    model = LoadedModel(name="by-brightness", model=ByBrightness(), preprocessing=TINY)

    def evaluated(dataset: str, **options: object) -> EvaluationReport:
        return evaluate_shifts(
            model, tmp_path, dataset=dataset, device="cpu", progress=False, **options
        )

    out = tmp_path / "out"
    report = evaluated("imagenet-d", out=out)
    assert [result.record.labelled for result in report.results] == [181 + 2] * 6
    # Right are the grey and the bright image of telephone and the grey one of cell_phone.
    assert [result.record.wrong for result in report.results] == [183 - 3] * 6
    errors = dict.fromkeys(DOMAINS, 100 * 180 / 183)
    assert report.relative_error().value == pytest.approx(mde(errors).value)
    # Right are the grey image of cell_phone, the bright one of telephone, and the sorrel.
    report = evaluated("imagenet-d-curated", out=out)
    assert [result.record.labelled for result in report.results] == [164 + 2] * 6
    assert [result.record.wrong for result in report.results] == [166 - 3] * 6
    assert report.relative_error() is None  # AlexNet's errors are with the other map
    assert {job.dataset for job in (each.job for each in Store(out / "results.db").results())} == {
        "imagenet-d",
        "imagenet-d-curated",
    }


def test_folders_no_class_is_for_are_left_out_with_a_note(tmp_path, capsys):
    class_folders(tmp_path / "real", [*NAMES, *OTHERS[:3]], each=2)
    assert len(open_tiny(tmp_path, "real", progress=True)) == 362
    noted = capsys.readouterr().err
    assert "imagenet-d: 6 of 368 images in" in noted
    assert "left out: the map has no class for their 3 folders" in noted


def test_a_folder_that_is_not_of_domainnet_is_named(tmp_path):
    class_folders(tmp_path / "clipart", [*NAMES, *OTHERS[:3], "unicorn"])
    with pytest.raises(AcclimateError, match=r"1 of 182 folders .* none of the 181 .*: unicorn;"):
        open_tiny(tmp_path, incomplete=True)


def test_missing_classes_are_named(tmp_path):
    class_folders(tmp_path / "clipart", NAMES[2:])
    expected = f"the 181 class folders of imagenet-d .* 2 are missing: {NAMES[0]}, {NAMES[1]};"
    with pytest.raises(AcclimateError, match=expected):
        open_tiny(tmp_path)
    with pytest.warns(AcclimateWarning, match="2 are missing"):
        source = open_tiny(tmp_path, incomplete=True)
    assert source.labels is not None
    assert set(source.labels.tolist()) == set(range(2, 164))
    assert source.class_names == LABELS.names


def test_a_whole_domain_is_counted(tmp_path, monkeypatch):
    class_folders(tmp_path / "sketch", [*NAMES, *OTHERS])
    expected = "at least 69,128 images of all classes of DomainNet in .*, found 345;"
    with pytest.raises(AcclimateError, match=expected):
        open_tiny(tmp_path, "sketch")
    monkeypatch.setitem(imagenet_d._AT_LEAST, "sketch", 345)
    assert len(open_tiny(tmp_path, "sketch")) == 181
    assert len(open_tiny(tmp_path, "sketch", "imagenet-d-curated")) == 164


def test_a_missing_domain_names_all_that_are_missing(tmp_path):
    for domain in ("clipart", "real"):
        (tmp_path / domain).mkdir()
    assert missing_parts("imagenet-d", tmp_path) == ["infograph", "painting", "quickdraw", "sketch"]
    with pytest.raises(AcclimateError) as caught:
        open_tiny(tmp_path, "painting", incomplete=True)
    text = str(caught.value)
    assert "expected the folder painting" in text
    assert "Missing in all: infograph, painting, quickdraw, sketch\n" in text
    assert "https://ai.bu.edu/M3SDA" in text


def test_a_domain_has_to_be_chosen(tmp_path):
    with pytest.raises(AcclimateError, match="has 6 domains, and one has to be chosen"):
        open_dataset("imagenet-d", tmp_path)
    assert find_dataset("imagenet-d").dev == ()


# DomainNet's lists of training and test images.


@pytest.fixture
def listed(tmp_path):
    class_folders(tmp_path / "clipart", NAMES, each=3)
    lines = [f"clipart/{name}/image_0001.JPEG {n}" for n, name in enumerate(NAMES)]
    lines.append(f"clipart/{OTHERS[0]}/elsewhere.jpg 344")
    (tmp_path / "clipart_test.txt").write_text("\n".join(lines) + "\n\n")
    return tmp_path


@pytest.mark.parametrize("place", [".", "txt", "splits"])
def test_a_list_chooses_the_images_of_a_split(listed, place):
    (listed / place).mkdir(exist_ok=True)
    (listed / "clipart_test.txt").rename(listed / place / "clipart_test.txt")
    source = open_tiny(listed, split="test")
    assert len(source) == 181
    assert {name.split("/")[1] for name in source.names} == {"image_0001.JPEG"}
    assert len(open_tiny(listed)) == 543


def test_a_split_needs_its_list(listed):
    with pytest.raises(AcclimateError, match="split 'train' needs clipart_train"):
        open_tiny(listed, split="train")


def test_images_that_are_listed_but_not_there_are_named(listed):
    image_ = listed / "clipart" / NAMES[1] / "image_0001.JPEG"
    image_.unlink()
    with pytest.raises(AcclimateError, match=f"1 images of .* not in .*: {NAMES[1]}/image_0001"):
        open_tiny(listed, split="test")
    with pytest.warns(AcclimateWarning, match="1 images of"):
        assert len(open_tiny(listed, split="test", incomplete=True)) == 180


@pytest.mark.parametrize("line", ["nonsense", "real/zebra/1.jpg 3", "clipart/zebra.jpg 3"])
def test_a_bad_line_in_a_list_is_named(listed, line):
    with (listed / "clipart_test.txt").open("a") as file:
        file.write(line)
    with pytest.raises(AcclimateError, match="in line 184 of"):
        open_tiny(listed, split="test")


def test_images_of_any_kind_count(tmp_path):
    class_folders(tmp_path / "quickdraw", NAMES[1:])
    write_image(tmp_path / "quickdraw" / NAMES[0] / "a.png")
    assert len(open_tiny(tmp_path, "quickdraw")) == 181
