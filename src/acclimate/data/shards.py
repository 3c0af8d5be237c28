"""Images in tar files, as WebDataset packs them: read in any order, without unpacking."""

from __future__ import annotations

import itertools
import math
import os
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from acclimate.data.decode import UnreadableImageError
from acclimate.data.files import EXTENSIONS, EncodedSource, refuse_large_file
from acclimate.data.labels import ClassList, Labels, check_labels, labels_of_paths
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.reading import parse_json

__all__ = ["ShardSource", "expand_shards"]

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")
_MOST = 100_000  # shards
_BLOCK = 512
_LONGEST_END = 2**20  # padding after the end: tar adds 10 KiB at most
_LONGEST_LABEL = 2**20  # bytes: a class index, or some JSON that has one
_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"\x28\xb5\x2f\xfd": "unzstd",
}


@dataclass(frozen=True)
class _Sample:
    """One sample of a shard: where its image begins and how long it is, or why there is none."""

    shard: Path
    key: str  # the name its files share
    offset: int = 0
    size: int = 0
    label: int = -1
    problem: str | None = None

    def fetch(self) -> bytes:
        """The bytes of the image."""
        if self.problem is not None:
            raise UnreadableImageError(self.problem)
        refuse_large_file(self.size)
        with self.shard.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


def expand_shards(pattern: str | Path) -> list[Path]:
    """The shards that a pattern, a folder or a single path means; all have to be there.

    ``data-{000..005}.tar`` counts, keeping the number of digits; ``{train,val}.tar`` lists;
    ``*`` and ``?`` stand for what is found; a folder means every .tar directly in it.

    Raises:
        AcclimateError: naming the shards that are not there.
    """
    text = os.path.expanduser(pattern)
    if Path(text).is_dir():
        found = sorted(
            path
            for path in Path(text).iterdir()
            if path.suffix.lower() == ".tar" and path.is_file()
        )
        if not found:
            raise AcclimateError(f"expected .tar files in {text}, found none")
        return found
    shards: list[Path] = []
    missing: list[str] = []
    pieces = _BRACES.split(text)
    if math.prod(map(_count, pieces[1::2])) > _MOST:
        raise AcclimateError(f"expected at most {_MOST:,} shards, {text} names more")
    choices = [[piece] if place % 2 == 0 else _choices(piece) for place, piece in enumerate(pieces)]
    for name in map("".join, itertools.product(*choices)):
        matches = sorted(map(Path, glob(name))) if set(name) & set("*?") else [Path(name)]
        shards += matches
        if not matches or not all(path.is_file() for path in matches):
            missing.append(name)
    if missing:
        first = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise AcclimateError(f"expected shards, {len(missing)} of {pattern} are not there: {first}")
    return shards


def _count(inside: str) -> int:
    """How many choices stand between braces, without making them."""
    ends = _RANGE.fullmatch(inside)
    if ends is None:
        return inside.count(",") + 1
    first, last = int(ends[1]), int(ends[2])
    if last < first:
        raise AcclimateError(f"expected {{{inside}}} of a shard pattern to count upwards")
    return last - first + 1


def _choices(inside: str) -> list[str]:
    """What stands between braces."""
    ends = _RANGE.fullmatch(inside)
    if ends is None:
        if ".." in inside:
            raise AcclimateError(
                f"expected two numbers in {{{inside}}} of a shard pattern, like {{000..005}}"
            )
        return inside.split(",")
    first, last = int(ends[1]), int(ends[2])
    return [str(number).zfill(len(ends[1])) for number in range(first, last + 1)]


def _index_shard(path: Path) -> list[_Sample]:
    """The samples of one tar file, in the order in which they begin in it."""
    samples: dict[str, dict[str, tarfile.TarInfo]] = {}
    try:
        with path.open("rb") as file:
            head = file.read(8)
            for magic, tool in _COMPRESSED.items():
                if head.startswith(magic):
                    raise AcclimateError(
                        f"{path} is compressed, and images in it cannot be read in any order; "
                        f"unpack it to a plain .tar first ({tool} {path.name})"
                    )
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for member in tar:
                    folder, slash, name = member.name.rpartition("/")
                    stem, dot, ending = name.partition(".")
                    # Hidden files (as macOS adds them) and folders are no part of any sample.
                    if not member.isreg() or member.issparse() or not stem or not dot:
                        continue
                    files = samples.setdefault(folder + slash + stem, {})
                    if files.setdefault(ending.lower(), member) is not member:
                        raise AcclimateError(
                            f"expected each file once in {path}, got {member.name} twice"
                        )
                _check_end(path, file, tar.offset)
            end = file.seek(0, 2)
            return [_sample(path, key, files, end) for key, files in samples.items()]
    except OSError as error:
        raise AcclimateError(f"cannot read the shard {path}: {error.strerror or error}") from error
    except tarfile.TarError as error:
        raise AcclimateError(
            f"expected a whole tar file at {path}, got: {error}; get the shard again"
        ) from error


def _check_end(path: Path, file: BinaryIO, offset: int) -> None:
    """Refuse what tarfile silently takes for the end: a cut, damage, a second tar."""
    file.seek(offset)
    rest = file.read(_LONGEST_END)
    if rest[:_BLOCK] != bytes(_BLOCK):
        raise AcclimateError(
            f"expected a whole tar file at {path}, but after {offset:,} bytes there is neither a "
            "file nor the mark of the end: it is cut short or damaged; get the shard again"
        )
    if rest.strip(b"\0"):
        raise AcclimateError(
            f"{path} continues after its end, as tar files do that were joined with cat; give "
            "its parts one by one"
        )


def _sample(path: Path, key: str, files: dict[str, tarfile.TarInfo], end: int) -> _Sample:
    found = [ending for ending in files if f".{ending}" in EXTENSIONS]
    if len(found) > 1:
        raise AcclimateError(
            f"expected one image in each sample, {key} in {path} has {', '.join(found)}"
        )
    if not found:
        return _Sample(path, key, problem=f"no image (only {', '.join(sorted(files))})")
    image = files[found[0]]
    if image.offset_data + image.size > end:
        raise AcclimateError(f"{path} is cut short within {image.name}; get the shard again")
    return _Sample(path, key, image.offset_data, image.size, _label(path, key, files))


def _label(path: Path, key: str, files: dict[str, tarfile.TarInfo]) -> int:
    kind = next((ending for ending in ("cls", "json") if ending in files), None)
    if kind is None:
        return -1
    with path.open("rb") as file:
        file.seek(files[kind].offset_data)
        content = file.read(min(files[kind].size, _LONGEST_LABEL))
    try:
        if kind == "cls":
            return int(content)
        label = parse_json(content.decode(), path).get("label", -1)
        if type(label) is not int:
            raise ValueError(f"label {label!r}")
    except (ValueError, AttributeError, AcclimateError) as error:
        wanted = "a class index" if kind == "cls" else 'a class index as "label"'
        raise AcclimateError(
            f"expected {wanted} in {key}.{kind} of {path}, got {content[:40]!r}"
        ) from error
    return label


class ShardSource(EncodedSource):
    """The samples of uncompressed tar files, in the order they are packed.

    A sample is the files that share a name up to its first dot: one image and, if known, its
    class index in a ``.cls`` (text) or a ``.json`` (``{"label": 3}``); where no sample has one,
    folders within the tars that name classes give labels, as on disk. ``labels`` overrides those
    found, one per sample, readable or not. Images are named ``shard.tar/sample``.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        preprocessing: Preprocessing,
        labels: Labels | None = None,
        classes: ClassList | None = None,
        by_index: bool = False,
        progress: bool = True,
        **options: Any,
    ) -> None:
        shards = [Path(path) for path in paths]
        if not shards:
            raise AcclimateError("expected at least one shard, got none")
        seen: dict[Path, Path] = {}
        for path in shards:
            first = seen.setdefault(path.resolve(), path)
            if first is not path:
                raise AcclimateError(f"expected each shard once, got {path} again ({first})")
        bar = tqdm(shards, desc="shards", unit="", delay=1, disable=not progress)
        samples = [sample for path in bar for sample in _index_shard(path)]
        if not samples:
            raise AcclimateError(f"expected samples in {len(shards)} shards, found none")
        class_names: tuple[str, ...] | None = None
        if labels is None and all(sample.label == -1 for sample in samples):
            keys = [sample.key for sample in samples]
            known, class_names = labels_of_paths(keys, classes, by_index=by_index)
        else:
            labels = [sample.label for sample in samples] if labels is None else labels
            count = None if classes is None else len(classes)
            known = check_labels(labels, count=len(samples), class_count=count)

        # Shards go by file name, or by path where file names repeat.
        used = {sample.shard for sample in samples}
        short = len({shard.name for shard in used}) == len(used)
        super().__init__(
            lambda row: samples[row].fetch(),
            names=[
                f"{sample.shard.name if short else sample.shard.as_posix()}/{sample.key}"
                for sample in samples
            ],
            where=f"{len(shards)} shards",
            # The same samples packed into more or fewer files are the same data.
            marks=[sample.key for sample in samples],
            preprocessing=preprocessing,
            labels=known,
            class_names=class_names,
            progress=progress,
            **options,
        )
