"""The map from ImageNet's classes to DomainNet's folders is whole, unambiguous and right."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from acclimate.data.benchmarks.imagenet_d import (
    imagenet_d_classes,
    imagenet_d_scoring,
    label_of_output,
    left_out,
    mapping,
)
from acclimate.data.labels import labels_of_paths
from acclimate.metrics import Tally
from acclimate.models import imagenet_classes

PAGE = (Path(__file__).parents[3] / "docs/imagenet-d.md").read_text()
IMAGENET = imagenet_classes()
FIRST = [name.split(",")[0].strip() for name in IMAGENET.names]
# tab:mapping: number of ImageNet classes -> number of ImageNet-D classes
PAPER = {1: 102, 2: 32, 3: 13, 4: 3, 5: 5, 6: 1, 7: 1, 8: 2, 13: 1, 28: 2, 39: 1, 132: 1}


def folder_of(name: str) -> str | None:
    """The ImageNet-D class an ImageNet class, given by its first name, counts as."""
    assert FIRST.count(name) == 1, name
    label = int(label_of_output()[FIRST.index(name)])
    return None if label < 0 else imagenet_d_classes().names[label]


def test_there_are_164_classes_out_of_345_folders():
    names = [entry.name for entry in mapping()]
    assert len(names) == 164
    assert names == sorted(set(names))
    assert not set(names) & set(left_out())
    assert len({*names, *left_out()}) == 345
    # of the published folder names, sorted: a misspelt folder would find no images
    spelling = hashlib.sha256("\n".join(sorted({*names, *left_out()})).encode()).hexdigest()
    assert spelling.startswith("f54521e7f5d873bd")


@pytest.mark.parametrize("entry", mapping(), ids=lambda entry: entry.name)
def test_index_id_and_name_agree(entry):
    assert entry.outputs
    assert list(entry.outputs) == sorted(set(entry.outputs))
    for index, id_, name in zip(entry.outputs, entry.output_ids, entry.output_names, strict=True):
        assert (IMAGENET.ids[index], FIRST[index]) == (id_, name)


def test_no_output_counts_twice():
    counts = Counter(index for entry in mapping() for index in entry.outputs)
    assert [FIRST[index] for index, count in counts.items() if count > 1] == []


def test_what_the_names_alone_do_not_say_has_a_reason():
    for entry in mapping():
        named = entry.name.replace("_", " ").replace("-", " ").casefold()
        synonyms = IMAGENET.names[entry.outputs[0]].casefold()
        if len(entry.outputs) > 1 or named not in synonyms:
            assert entry.why, entry.name


def test_classes_named_in_reasons_exist():
    cited = 0
    for why in left_out().values():
        for words, index in re.findall(r"([\w' -]+?) \((\d+)\)", why):
            assert FIRST[int(index)].casefold() in words.casefold(), why
            cited += 1
    assert cited > 80


def test_families():
    family = {entry.name: entry.outputs for entry in mapping()}
    assert family["dog"] == tuple(range(151, 269))
    assert family["snake"] == tuple(range(52, 69))
    assert family["monkey"] == tuple(range(370, 383))
    kinds = [family[name] for name in ("bird", "owl", "duck", "swan", "flamingo", "penguin")]
    birds = [*range(7, 25), *range(80, 101), *range(127, 147)]
    assert sorted(index for kind in kinds for index in kind) == birds


NO_CLASS = """
horse cart, buckeye, dogsled, dingo, dhole, African hunting dog, timber wolf, hyena, koala,
platypus, Komodo dragon, ear, seat belt, feather boa, knee pad, Dutch oven, radio telescope,
airship, guinea pig, piggy bank, tiger beetle, rhinoceros beetle, starfish, custard apple,
brain coral, mosquito net, dragonfly, damselfly, dugong, tick, harvestman, spider web, mud
turtle, golf ball, tennis ball, toilet tissue, shoe shop, car mirror, mouse, orangutan,
chimpanzee, siamang, Madagascar cat, cougar, harmonica, hot pot
"""


@pytest.mark.parametrize("name", NO_CLASS.replace("\n", " ").strip().split(", "))
def test_known_mistakes_are_not_in_the_map(name):
    assert folder_of(name) is None


FOLDERS = {
    "hot_dog": "hotdog",
    "horse": "sorrel",
    "cat": "tiger cat",
    "shark": "tiger shark",
    "train": "passenger car, freight car",
    "monkey": "spider monkey, squirrel monkey",
    "dog": "affenpinscher, Shetland sheepdog",
    "teddy-bear": "teddy",
    "van": "police van",
    "owl": "great grey owl",
    "duck": "drake",
    "bird": "white stork, macaw",
    "laptop": "notebook",
    "telephone": "pay-phone",
    "truck": "trailer truck",
}


@pytest.mark.parametrize(
    ("name", "folder"),
    [(name, folder) for folder, names in FOLDERS.items() for name in names.split(", ")],
)
def test_easily_mistaken_classes_map_to_the_right_folder(name, folder):
    assert folder_of(name) == folder


def test_label_of_output_is_the_map():
    labels = label_of_output()
    assert labels.shape == (1000,)
    assert labels.dtype == torch.int64
    for label, entry in enumerate(mapping()):
        assert (labels == label).nonzero().flatten().tolist() == list(entry.outputs)
    assert int((labels >= 0).sum()) == sum(len(entry.outputs) for entry in mapping())
    labels.fill_(0)  # a caller's change stays the caller's
    assert int(label_of_output()[603]) == -1


def test_images_in_folders_are_scored_through_the_map():
    labels, _ = labels_of_paths(["dog/a.jpg", "horse/b.jpg", "t-shirt/c.jpg"], imagenet_d_classes())
    logits = torch.zeros(3, 1000)
    logits[[0, 1, 2], [268, 603, 610]] = 9.0  # Mexican hairless, horse cart, jersey
    tally = Tally()
    tally.update(logits, labels=labels, scoring=imagenet_d_scoring())
    assert tally.scores().error == pytest.approx(100 / 3)


def test_the_page_shows_both_histograms():
    ours = Counter(len(entry.outputs) for entry in mapping())
    table = {
        int(n): (int(a), int(b)) for n, a, b in re.findall(r"\| (\d+) \| (\d+) \| (\d+) \|", PAGE)
    }
    assert table == {n: (PAPER.get(n, 0), ours.get(n, 0)) for n in sorted({*PAPER, *ours})}
    sums = dict(re.findall(r"^\| (folders|pairs) \| (\d+ \| \d+) \|$", PAGE, flags=re.MULTILINE))
    assert sums == {
        "folders": f"{sum(PAPER.values())} | {sum(ours.values())}",
        "pairs": f"{sum(n * f for n, f in PAPER.items())} | {sum(n * f for n, f in ours.items())}",
    }


def test_the_pages_words_follow_from_the_file():
    doubtful = {entry.name for entry in mapping() if "Doubtful" in entry.why}
    listed = PAGE.split("**Doubtful, kept.**")[1].split("True, but")[0]
    assert set(re.findall(r"`([\w-]+)`", listed)) == doubtful
    lacking = [name for name, why in left_out().items() if "selection lacks" in why]
    right = len(mapping()) + len(lacking)
    assert f"{right} have a right or close answer" in PAGE
    assert f"The\nother {len(lacking)} (" in PAGE
    for name in re.findall(r"`([\w-]+)`", PAGE.split("**Ambiguous.**")[1].split("are")[0]):
        assert name in left_out()


def test_the_pages_example_runs(capsys):
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(source, "docs/imagenet-d.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.count("images=500") == 4
