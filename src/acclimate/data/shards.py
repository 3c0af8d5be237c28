"""Pictures in tar files, as WebDataset packs them: read in any order, without unpacking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from acclimate.data.decode import UnreadableImageError
from acclimate.data.encoded import EncodedSource
from acclimate.data.labels import ClassList, Labels, check_labels, labels_of_paths
from acclimate.data.preprocessing import Preprocessing
from acclimate.data.shard_index import Sample, expand_shards, index_shard
from acclimate.errors import AcclimateError

__all__ = ["ShardSource", "expand_shards"]


class ShardSource(EncodedSource):
    """The samples of uncompressed tar files, in the order they are packed.

    A sample is the files that share a name up to its first dot: one picture and, if known, its
    class number in a ``.cls`` (text) or a ``.json`` (``{"label": 3}``); where no sample has one,
    folders within the tars that name classes give labels, as on disk. ``labels`` overrides those
    found, one per sample, readable or not. Pictures are named ``shard.tar/sample``.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        preprocessing: Preprocessing,
        labels: Labels | None = None,
        classes: ClassList | None = None,
        cache: int | None = None,
        progress: bool = True,
    ) -> None:
        shards = _distinct([Path(path) for path in paths])
        bar = tqdm(shards, desc="shards", unit="", delay=1, disable=not progress)
        samples = [sample for path in bar for sample in index_shard(path)]
        if not samples:
            raise AcclimateError(f"expected samples in {len(shards)} shards, found none")
        class_names: tuple[str, ...] | None = None
        if labels is None and all(sample.label == -1 for sample in samples):
            known, class_names = labels_of_paths([sample.key for sample in samples], classes)
        else:
            labels = [sample.label for sample in samples] if labels is None else labels
            count = None if classes is None else len(classes)
            known = check_labels(labels, count=len(samples), class_count=count)

        super().__init__(
            lambda row: _fetch(samples[row]),
            names=_names(samples),
            where=f"{len(shards)} shards",
            # The same samples packed into more or fewer files are the same data.
            marks=[sample.key for sample in samples],
            preprocessing=preprocessing,
            labels=known,
            class_names=class_names,
            cache=cache,
            progress=progress,
        )


def _distinct(paths: list[Path]) -> list[Path]:
    if not paths:
        raise AcclimateError("expected at least one shard, got none")
    seen: dict[Path, Path] = {}
    for path in paths:
        real = path.resolve()
        if real in seen:
            raise AcclimateError(f"expected each shard once, got {path} again ({seen[real]})")
        seen[real] = path
    return paths


def _names(samples: Sequence[Sample]) -> list[str]:
    """Names that tell samples apart: shards by file name, or by path where file names repeat."""
    shards = {sample.shard for sample in samples}
    short = len({shard.name for shard in shards}) == len(shards)
    return [
        f"{sample.shard.name if short else sample.shard.as_posix()}/{sample.key}"
        for sample in samples
    ]


def _fetch(sample: Sample) -> bytes:
    if sample.problem is not None:
        raise UnreadableImageError(sample.problem)
    with sample.shard.open("rb") as file:
        file.seek(sample.offset)
        return file.read(sample.size)
