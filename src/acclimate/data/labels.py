"""What the images really show, as class indices, and how predictions are scored by it."""

from __future__ import annotations

import csv
import difflib
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.reading import read_text
from acclimate.text import user_path

__all__ = [
    "BY_INDEX",
    "NO_LABELS",
    "ClassList",
    "Labels",
    "LabelsFrom",
    "Scoring",
    "check_labels",
    "classes_named",
    "imagenet_classes",
    "imagenet_index",
    "labels_of_paths",
    "match_classes",
    "read_labels",
]

Labels: TypeAlias = Sequence[int] | Tensor | NDArray[np.integer]
"""One class index per image, -1 where unknown."""

BY_INDEX, NO_LABELS = "index", "none"

LabelsFrom: TypeAlias = Labels | str | Path
"""Labels, or where they are: a table with the columns file and class, ``"index"`` for sub-folders
numbered by class, ``"none"`` for no labels whatever the folders are called."""

_Rule = Callable[[str], "int | None"]


@dataclass(frozen=True)
class ClassList:
    """The classes of a model, in the order of its outputs.

    ``names`` may hold synonyms, set apart by commas; ``ids`` are names such as WordNet's.

    >>> len(ClassList(("tench, Tinca tinca", "goldfish"), ids=("n01440764", "n01443537")))
    2
    """

    names: tuple[str, ...]
    ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.ids is not None and len(self.ids) != len(self.names):
            raise AcclimateError(
                f"expected as many ids as names, got {len(self.ids)} and {len(self.names)}"
            )

    def __len__(self) -> int:
        return len(self.names)


def match_classes(
    folders: Sequence[str], classes: ClassList | None, *, by_index: bool = True
) -> list[int] | None:
    """The class index of each folder: by name, else by id, else by index unless that is off.

    All folders go by one rule where one fits them all. None means that the folders do not name
    classes at all (dates, cameras). Without a class list only indices can be read.

    >>> pets = ClassList(("tabby, tabby cat", "guinea-pig", "dog"))
    >>> match_classes(["Guinea_Pig", "tabby cat"], pets)
    [1, 0]
    >>> match_classes(["002", "0"], pets)
    [2, 0]
    >>> match_classes(["2024-05", "2024-06"], pets) is None
    True

    Raises:
        AcclimateError: when some folders name classes and others do not.
    """

    rules = [*_naming_rules(classes), *([_index_rule(classes)] if by_index else [])]
    for rule in rules:
        found = _all_by(rule, folders)
        if found is not None:
            return found
    mixed = _by_any(rules, folders)
    unmatched = [name for name, index in zip(folders, mixed, strict=True) if index is None]
    if classes is None or len(unmatched) == len(folders):
        return None
    if unmatched:
        raise _unmatched_error(unmatched, len(folders), classes)
    return [index for index in mixed if index is not None]


def classes_named(names: Sequence[str], classes: ClassList) -> list[int | None]:
    """The class that each name means, by name or by id, or None."""
    return _by_any(_naming_rules(classes), names)


def labels_of_paths(
    paths: Sequence[str], classes: ClassList | None, *, by_index: bool = False
) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """Labels of relative paths by the folders they lie in, and the names of those folders.

    The class folder is the outermost one, or the innermost where only that one names classes
    (``gaussian_noise/5/n01440764/a.jpg``). Images outside any folder have the label -1. Numbers
    are classes only if asked for: they are as often cameras, days or parts of a set.

    >>> labels_of_paths(["cat/1.png", "dog/1.png"], ClassList(("dog", "cat")))
    (tensor([1, 0]), ('cat', 'dog'))
    >>> labels_of_paths(["1/1.png"], None), labels_of_paths(["1/1.png"], None, by_index=True)
    ((None, ('1',)), (tensor([1]), ('1',)))
    """
    outer, inner = (
        [path.split("/")[level] if "/" in path else None for path in paths] for level in (0, -2)
    )
    if not any(outer):
        return None, None

    for rule in _naming_rules(classes):
        for level in (outer, inner):
            found = _all_by(rule, _named(level))
            if found is not None:
                return _spread(level, found), tuple(_named(level))
    folders = _named(outer)
    found = match_classes(folders, classes, by_index=by_index)
    return None if found is None else _spread(outer, found), tuple(folders)


def read_labels(path: str | Path, names: Sequence[str], classes: ClassList | None) -> Tensor:
    """Labels of images from a table with the columns file and class, -1 where it has none.

    A file is named as in the folder, or by its last part where no other image has that; a class by
    name, id or index. Tables of spreadsheets with semicolons or tabs are read too.
    """
    path = user_path(path)
    given = _read_table(path)
    rules = [*_naming_rules(classes), _index_rule(classes)]
    said = sorted(set(given.values()))
    indices = next((found for rule in rules if (found := _all_by(rule, said))), None)
    if indices is None:
        indices = [-1 if each is None else each for each in _by_any(rules, said)]
        if unknown := [word for word, i in zip(said, indices, strict=True) if i < 0]:
            raise AcclimateError(
                f"expected classes of the model in {path}, by name, id or index, got "
                f"{', '.join(map(repr, unknown[:5]))}"
            )
    index = dict(zip(said, indices, strict=True))
    rows = {name: row for row, name in enumerate(names)}
    short: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        short.setdefault(name.rpartition("/")[2], []).append(row)
    labels, absent = torch.full((len(names),), -1), []
    for file, word in given.items():
        found = [rows[file]] if file in rows else short.get(file.rpartition("/")[2], [])
        if len(found) == 1:
            labels[found[0]] = index[word]
        else:
            absent.append(file)
    if len(absent) == len(given):
        raise AcclimateError(
            f"none of the {len(given)} files in {path} are among the images: expected names such "
            f"as {names[0]!r}, got {absent[0]!r}"
        )
    if absent:
        warnings.warn(
            f"{len(absent)} of {len(given)} files in {path} are not among the images, or not one "
            f"alone ({', '.join(absent[:3])})",
            AcclimateWarning,
            stacklevel=2,
        )
    return labels


def _read_table(path: Path) -> Mapping[str, str]:
    """The class of each file, as written; rows without a class are left out."""
    text = read_text(path).removeprefix("\ufeff")
    head = text.partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    columns = {name.strip().casefold(): name for name in rows.fieldnames or ()}
    if missing := [name for name in ("file", "class") if name not in columns]:
        raise AcclimateError(
            f"expected a table with the columns file and class in {path}, got no {missing[0]!r} "
            f"among {', '.join(map(repr, columns)) or 'none'}"
        )
    given: dict[str, str] = {}
    for row in rows:
        file, word = ((row[columns[name]] or "").strip() for name in ("file", "class"))
        file = file.replace("\\", "/").removeprefix("./")
        if not file or not word:
            continue
        if given.setdefault(file, word) != word:
            raise AcclimateError(
                f"expected one class for {file} in {path}, got {given[file]!r} and {word!r}"
            )
    if not given:
        raise AcclimateError(f"expected labelled files in {path}, got none")
    return given


def _index_rule(classes: ClassList | None) -> _Rule:
    def by_index(name: str) -> int | None:
        known = name.isascii() and name.isdigit()
        return int(name) if known and (classes is None or int(name) < len(classes)) else None

    return by_index


def check_labels(labels: Labels, *, count: int, class_count: int | None = None) -> Tensor | None:
    """Labels as an int64 tensor on the CPU, once they fit the images and the model.

    >>> check_labels([2, -1], count=2, class_count=3)
    tensor([ 2, -1])
    """
    try:
        given = torch.as_tensor(labels).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise AcclimateError(f"expected class indices as labels, got {labels!r:.80}") from error
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1 or len(given) != count:
        raise AcclimateError(
            f"expected one label for each of the {count} images, got labels of shape "
            f"{tuple(given.shape)}; give a flat list of class indices, -1 where unknown"
        )
    whole = given.to(torch.int64)
    if given.dtype == torch.bool or not torch.equal(whole.to(given.dtype), given):
        raise AcclimateError(f"expected whole numbers as labels, got {given.dtype}")
    wrong, outputs, upper = whole < -1, "", ""
    if class_count is not None:
        wrong |= whole >= class_count
        outputs, upper = f" of a model with {class_count} classes", f" to {class_count - 1}"
    if wrong.any():
        values = ", ".join(map(str, sorted(set(whole[wrong].tolist()))[:5]))
        raise AcclimateError(
            f"{int(wrong.sum())} labels are no classes{outputs}: expected 0{upper} "
            f"(-1 where unknown), got {values}; is this the model for these labels?"
        )
    return whole if bool((whole >= 0).any()) else None


def _named(level: list[str | None]) -> list[str]:
    return sorted({name for name in level if name is not None})


def _spread(level: list[str | None], found: list[int]) -> Tensor:
    """The label of each image, of those of the folders' names."""
    index: dict[str | None, int] = dict(zip(_named(level), found, strict=True))
    return torch.tensor([index.get(name, -1) for name in level])


def _all_by(rule: _Rule, folders: Sequence[str]) -> list[int] | None:
    found = [index for name in folders if (index := rule(name)) is not None]
    return found if folders and len(found) == len(folders) else None


def _by_any(rules: Sequence[_Rule], names: Sequence[str]) -> list[int | None]:
    return [next((i for rule in rules if (i := rule(name)) is not None), None) for name in names]


def _naming_rules(classes: ClassList | None) -> list[_Rule]:
    """By name, and by id. A synonym has to mean one class only ("crane" means two)."""
    if classes is None:
        return []
    full: dict[str, set[int]] = {}
    synonyms: dict[str, set[int]] = {}
    for index, name in enumerate(classes.names):
        full.setdefault(_plain(name), set()).add(index)
        for synonym in name.split(","):
            synonyms.setdefault(_plain(synonym), set()).add(index)
    meanings = {**synonyms, **full}
    names = {name: min(meant) for name, meant in meanings.items() if len(meant) == 1 and name}
    ids = {name.casefold(): index for index, name in enumerate(classes.ids or ())}
    return [lambda name: names.get(_plain(name)), lambda name: ids.get(name.casefold())]


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _unmatched_error(unmatched: list[str], count: int, classes: ClassList) -> AcclimateError:
    known = {_plain(s): s.strip() for name in classes.names for s in name.split(",")}
    described = []
    for folder in unmatched[:5]:
        near = difflib.get_close_matches(_plain(folder), known, n=1, cutoff=0.6)
        described.append(f"{folder!r}" + (f" (did you mean {known[near[0]]!r}?)" if near else ""))
    more = f" and {len(unmatched) - 5} more" if len(unmatched) > 5 else ""
    return AcclimateError(
        f"{len(unmatched)} of {count} folders name no class of the model: {', '.join(described)}"
        f"{more}; expected a class name, an id or an index below {len(classes)} for each. Rename "
        "or remove them, or put all images into one folder to go without labels"
    )


@cache
def imagenet_classes() -> ClassList:
    """Names (synonyms set apart by commas) and WordNet ids of the 1,000 classes.

    >>> classes = imagenet_classes()
    >>> classes.ids[0], classes.names[0]
    ('n01440764', 'tench, Tinca tinca')
    """
    text = resources.files("acclimate.data").joinpath("imagenet_classes.tsv")
    rows = [line.split("\t") for line in text.read_text(encoding="utf-8").splitlines()]
    return ClassList(names=tuple(names for _, names in rows), ids=tuple(id_ for id_, _ in rows))


def imagenet_index() -> dict[str, int]:
    """The class index of each WordNet id, in the order of the indices."""
    return {id_: index for index, id_ in enumerate(imagenet_classes().ids or ())}


@dataclass(frozen=True, eq=False)
class Scoring:
    """The labels of a data set in terms of a model's outputs.

    Attributes:
        keep: outputs that may be predicted; the others are left out (ImageNet-R and -A are
            scored over their 200 classes). None is all of them.
        label_of: for each output the label it counts as, -1 for none (ImageNet-D: any of the dog
            breeds is a dog). None: outputs and labels are the same indices.

    >>> import torch
    >>> logits = torch.tensor([[3.0, 2.0, 1.0]])
    >>> Scoring(keep=torch.tensor([1, 2])).predict(logits)
    tensor([1])
    >>> Scoring(label_of=torch.tensor([-1, 0, 0])).predict(logits)
    tensor([-1])
    """

    keep: Tensor | None = None
    label_of: Tensor | None = None

    def predict(self, logits: Tensor) -> Tensor:
        """The label each row of ``logits`` predicts; -1 where the output is no label at all."""
        return self.top(logits, 1)[:, 0]

    def top(self, logits: Tensor, k: int) -> Tensor:
        """The labels of the ``k`` largest outputs that may be predicted, N × k (fewer if fewer)."""
        self.check(logits.shape[1])
        there = self.on(logits.device)
        if there.keep is None:
            outputs = logits.topk(min(k, logits.shape[1]), dim=1).indices
        else:
            chosen = logits[:, there.keep].topk(min(k, len(there.keep)), dim=1).indices
            outputs = there.keep[chosen]
        return outputs if there.label_of is None else there.label_of[outputs]

    def on(self, device: torch.device) -> Scoring:
        """The same with its tensors on a device, where they go once and not with every batch.

        >>> scoring = Scoring(keep=torch.tensor([1, 2]))
        >>> scoring.on(torch.device("cpu")) is scoring
        True
        """
        tensors = [tensor for tensor in (self.keep, self.label_of) if tensor is not None]
        return self if all(tensor.device == device for tensor in tensors) else _on(self, device)

    def check(self, outputs: int) -> None:
        """Refuse a model with another number of outputs than this was made for."""
        if self.label_of is not None and len(self.label_of) != outputs:
            raise AcclimateError(
                f"expected a model with {len(self.label_of)} outputs for this data set, got "
                f"{outputs}"
            )
        if self._highest >= outputs:
            raise AcclimateError(
                f"this data set is scored over outputs up to {self._highest}, but the model "
                f"has {outputs}; is this the model for it?"
            )

    @cached_property
    def _highest(self) -> int:
        """The last output that may be predicted, read once: reading it from a GPU waits for it."""
        return -1 if self.keep is None else int(self.keep.max())


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # made in inference, they could not be used in training
def _on(scoring: Scoring, device: torch.device) -> Scoring:
    keep, label_of = (
        None if tensor is None else tensor.to(device) for tensor in (scoring.keep, scoring.label_of)
    )
    return Scoring(keep=keep, label_of=label_of)
