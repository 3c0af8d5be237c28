"""The maps from DomainNet's folders and ImageNet's outputs to ImageNet-D: released, and our own."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from acclimate.data import Scoring
from acclimate.data.benchmarks import find_dataset
from acclimate.data.benchmarks.imagenet_d import MAPS, label_map
from acclimate.errors import AcclimateError
from acclimate.metrics import Tally
from acclimate.models import imagenet_classes

PAGE = (Path(__file__).parents[3] / "docs/imagenet-d.md").read_text()
IMAGENET = imagenet_classes()
FIRST = [name.split(",")[0].strip() for name in IMAGENET.names]
RELEASED, CURATED = map(label_map, MAPS)
# tab:mapping: number of ImageNet classes -> number of ImageNet-D classes
PAPER = {1: 102, 2: 32, 3: 13, 4: 3, 5: 5, 6: 1, 7: 1, 8: 2, 13: 1, 28: 2, 39: 1, 132: 1}

both = pytest.mark.parametrize("labels", [RELEASED, CURATED], ids=MAPS)


def class_of(name: str, labels=CURATED) -> str | None:
    """The ImageNet-D class an ImageNet class, given by its first name, counts as."""
    assert FIRST.count(name) == 1, name
    label = int(labels.label_of_output[FIRST.index(name)])
    return None if label < 0 else labels.names[label]


def pairs_of(labels) -> dict[int, str]:
    """The class of each output that has one."""
    return {n: labels.names[at] for n, at in enumerate(labels.label_of_output.tolist()) if at >= 0}


# Both maps.


@both
def test_there_are_164_classes_out_of_345_folders(labels):
    assert len(labels.names) == 164 == find_dataset("imagenet-d").classes
    assert list(labels.names) == sorted(set(labels.names))
    folders = labels.label_of_folder
    assert len(folders) == sum(len(entry.folders) for entry in labels.classes)
    assert not set(folders) & set(labels.left_out)
    assert len({*folders, *labels.left_out}) == 345
    # of the published folder names, sorted: a misspelt folder would find no images
    every = sorted({*folders, *labels.left_out})
    assert hashlib.sha256("\n".join(every).encode()).hexdigest().startswith("f54521e7f5d873bd")


@both
def test_index_id_and_name_agree(labels):
    for entry in labels.classes:
        assert entry.outputs
        assert list(entry.outputs) == sorted(set(entry.outputs))
        rows = zip(entry.outputs, entry.output_ids, entry.output_names, strict=True)
        for index, id_, name in rows:
            assert (IMAGENET.ids[index], FIRST[index]) == (id_, name)


@both
def test_no_output_counts_twice(labels):
    counts = Counter(index for entry in labels.classes for index in entry.outputs)
    assert [FIRST[index] for index, count in counts.items() if count > 1] == []


@both
def test_label_of_output_is_the_map(labels):
    found = labels.label_of_output
    assert found.shape == (1000,)
    assert found.dtype == torch.int64
    for label, entry in enumerate(labels.classes):
        assert (found == label).nonzero().flatten().tolist() == list(entry.outputs)
    assert int((found >= 0).sum()) == sum(len(entry.outputs) for entry in labels.classes)
    found.fill_(0)  # a caller's change stays the caller's
    assert int(labels.label_of_output[0]) == -1


def test_a_map_that_is_not_there_is_named():
    with pytest.raises(AcclimateError, match="unknown label map 'imagenet-e'; did you mean"):
        label_map("imagenet-e")


# The released map.


def test_the_released_map_has_181_folders_and_464_outputs():
    assert label_map() == RELEASED
    assert len(RELEASED.label_of_folder) == 181
    assert len(pairs_of(RELEASED)) == 464


MERGED = """
baseball_bat baseball, hot_tub bathtub, couch bed, swan bird, school_bus bus, police_car car,
alarm_clock clock, keyboard computer, laptop computer, coffee_cup cup, mug cup, ceiling_fan fan,
lollipop ice_cream, popsicle ice_cream, cell_phone telephone, pickup_truck truck, van truck
"""


def test_seventeen_folders_are_merged_into_the_class_of_another():
    merged = dict(pair.split() for pair in MERGED.replace("\n", " ").strip().split(", "))
    classes = {name: RELEASED.names[label] for name, label in RELEASED.label_of_folder.items()}
    assert {name: kind for name, kind in classes.items() if name != kind} == merged
    assert all(entry.name in entry.folders for entry in RELEASED.classes)
    assert class_of("cellular telephone", RELEASED) == class_of("dial telephone", RELEASED)
    assert "firetruck" in RELEASED.left_out
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?){2,}) \|$", PAGE, flags=re.MULTILINE)
    listed = {name: tuple(re.findall(r"\w+", folders)) for name, folders in rows}
    several = [entry for entry in RELEASED.classes if len(entry.folders) > 1]
    assert listed == {entry.name: entry.folders for entry in several}
    assert f"{len(several)} classes have several folders" in PAGE


def test_its_lists_have_the_lengths_of_the_paper_without_their_repeats():
    family = {entry.name: entry.outputs for entry in RELEASED.classes}
    assert family["snake"] == tuple(range(52, 69))  # 28 in the paper
    assert family["monkey"] == tuple(range(365, 385))  # 28
    assert len(family["bird"]) == 38  # 39
    assert family["dog"] == (*range(151, 269), 275, 537)  # 132


# What differs.

MERGED_CLASS = {
    "bird": "black swan",
    "telephone": "cellular telephone",
    "computer": "computer keyboard, laptop, notebook",
    "truck": "pickup",
    "bus": "school bus",
    "bed": "studio couch",
    "ice_cream": "ice lolly",
}
OTHER_CLASS = {
    "drake": ("bird", "duck"),
    "red-breasted merganser": ("bird", "duck"),
    "fire engine": ("truck", "firetruck"),
    "freight car": ("car", "train"),
    "passenger car": ("car", "train"),
    "liner": ("ocean", "cruise_ship"),
    "police van": ("car", "van"),
}
RELEASED_ALONE = """
mud turtle sea_turtle, Komodo dragon dragon, harvestman spider, tick spider, platypus duck,
koala bear, dugong whale, African hunting dog dog, cougar lion, lacewing mosquito,
dragonfly mosquito, damselfly butterfly, hare rabbit, orangutan monkey, Madagascar cat monkey,
airship airplane, prison house, beer bottle wine_bottle, car mirror car, dogsled dog,
Dutch oven oven, feather boa feather, golf ball golf_club, harmonica harp, horse cart horse,
knee pad knee, lampshade floor_lamp, measuring cup cup, mosquito net mosquito, mouse computer,
ocarina potato, piggy bank pig, pirate cruise_ship, radio telescope radio, seat belt belt,
shoe shop shoe, spider web spider, streetcar car, tennis ball tennis_racquet, hot pot hot_dog,
ballplayer baseball, buckeye horse, ear ear, toilet tissue toilet
"""
CURATED_ALONE = """
tusker elephant, white stork bird, pelican bird, sorrel horse, ram sheep, crib bed,
four-poster bed, sombrero hat, convertible car, jeep car, cleaver knife, sandal shoe,
coffee mug mug, desk table, electric locomotive train, minivan van, pay-phone telephone,
moving van van, tub bathtub, viaduct bridge, throne chair, hamper basket, bolete mushroom
"""


def listed(text: str) -> dict[str, str]:
    return dict(each.rsplit(" ", 1) for each in text.replace("\n", " ").strip().split(", "))


def test_folders_that_one_map_has():
    released, curated = set(RELEASED.label_of_folder), set(CURATED.label_of_folder)
    assert curated - released == {"firetruck"}
    alone = """alarm_clock baseball_bat belt ceiling_fan coffee_cup dragon ear feather floor_lamp
        golf_club hot_tub house knee lollipop mosquito ocean oven police_car"""
    assert released - curated == set(alone.split())


def test_outputs_of_another_class():
    released, curated = pairs_of(RELEASED), pairs_of(CURATED)
    folders = RELEASED.label_of_folder
    apart = {n for n in released.keys() & curated.keys() if released[n] != curated[n]}
    merged = {
        n for n in apart if RELEASED.names[folders.get(curated[n], -1)] == released[n]
        and curated[n] in folders
    }  # fmt: skip
    assert {FIRST[n]: released[n] for n in merged} == {
        name: kind for kind, names in MERGED_CLASS.items() for name in names.split(", ")
    }
    assert {FIRST[n]: (released[n], curated[n]) for n in apart - merged} == OTHER_CLASS


def test_outputs_that_one_map_knows():
    for name, kind in listed(RELEASED_ALONE).items():
        assert (class_of(name, RELEASED), class_of(name)) == (kind, None), name
    for name, kind in listed(CURATED_ALONE).items():
        assert (class_of(name, RELEASED), class_of(name)) == (None, kind), name


def test_the_page_counts_what_differs():
    released, curated = pairs_of(RELEASED), pairs_of(CURATED)
    folders = [set(each.label_of_folder) for each in (RELEASED, CURATED)]
    shared = released.keys() & curated.keys()
    same = sum(released[n] == curated[n] for n in shared)
    merged, other = sum(len(names.split(", ")) for names in MERGED_CLASS.values()), len(OTHER_CLASS)
    assert same + merged + other == len(shared)
    rows = [
        len(folders[0] & folders[1]), len(folders[0] - folders[1]), len(folders[1] - folders[0]),
        len(shared), same, merged, other, len(released) - len(shared), len(curated) - len(shared),
    ]  # fmt: skip
    table = PAGE.split("## What differs, and why")[1].split("```")[0]
    assert [int(number) for number in re.findall(r"\| (\d+) \|$", table, flags=re.M)] == rows
    heads = re.findall(r"^\| `(imagenet-d\S*)` .* \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, flags=re.M)
    assert heads == [
        (name, str(len(each.label_of_folder)), "164", str(len(pairs_of(each))))
        for name, each in zip(MAPS, (RELEASED, CURATED), strict=True)
    ]


# Our own map.


def test_what_the_names_alone_do_not_say_has_a_reason():
    for entry in CURATED.classes:
        named = entry.name.replace("_", " ").replace("-", " ").casefold()
        synonyms = IMAGENET.names[entry.outputs[0]].casefold()
        if len(entry.outputs) > 1 or named not in synonyms:
            assert entry.why, entry.name


def test_classes_named_in_reasons_exist():
    cited = 0
    for why in CURATED.left_out.values():
        for words, index in re.findall(r"([\w' -]+?) \((\d+)\)", why):
            assert FIRST[int(index)].casefold() in words.casefold(), why
            cited += 1
    assert cited > 80


def test_families():
    family = {entry.name: entry.outputs for entry in CURATED.classes}
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
    assert class_of(name) is None


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
    assert class_of(name) == folder


@both
def test_predictions_are_scored_over_all_outputs(labels):
    truth = torch.tensor([labels.names.index(name) for name in ("dog", "horse", "t-shirt")])
    horse = labels.classes[int(truth[1])].outputs[0]
    logits = torch.zeros(3, 1000)
    logits[1, horse] = 8.0  # right, but second to a tench, which no map knows
    logits[[0, 1, 2], [268, 0, 610]] = 9.0  # Mexican hairless, tench, jersey
    tally = Tally()
    tally.update(logits, labels=truth, scoring=Scoring(label_of=labels.label_of_output))
    assert tally.scores().error == pytest.approx(100 / 3)


def test_the_page_shows_the_histograms():
    columns = [PAPER, *(Counter(len(e.outputs) for e in m.classes) for m in (RELEASED, CURATED))]
    rows = re.findall(r"^\| (\d+|classes|pairs) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, flags=re.M)
    sizes = sorted({size for column in columns for size in column})
    assert [list(map(int, row[1:])) for row in rows] == [
        *([column.get(size, 0) for column in columns] for size in sizes),
        [sum(column.values()) for column in columns],
        [sum(size * count for size, count in column.items()) for column in columns],
    ]
    assert [row[0] for row in rows] == [*map(str, sizes), "classes", "pairs"]


def test_the_pages_words_follow_from_the_file():
    doubtful = {entry.name for entry in CURATED.classes if "Doubtful" in entry.why}
    listed = PAGE.split("**Doubtful, kept.**")[1].split("True, but")[0]
    assert set(re.findall(r"`([\w-]+)`", listed)) == doubtful
    lacking = [name for name, why in CURATED.left_out.items() if "selection lacks" in why]
    right = len(CURATED.classes) + len(lacking)
    assert f"{right} have a right or close class" in PAGE
    assert f"The other {len(lacking)} (" in PAGE
    (without,) = re.findall(r"((?:`\w+`(?:, | and )?)+) are left out:", PAGE)
    assert set(re.findall(r"\w+", without)) - {"and"} <= set(CURATED.left_out)


def test_the_pages_examples_run(capsys):
    for source in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(source, "docs/imagenet-d.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.count("images=500") == 4
    assert "36 terrapin: sea_turtle (released), - (curated)\n" in printed
    assert printed.count("(curated)") == 9 + 7 + 64 + 53
