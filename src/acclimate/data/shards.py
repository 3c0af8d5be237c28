"""Pictures in tar files, as WebDataset packs them: read in any order, without unpacking."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from acclimate.data.base import ImageSource, Skipped, digest
from acclimate.data.decode import UnreadableImageError, decode
from acclimate.data.labels import ClassList, Labels, check_labels, labels_of_paths
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.data.shard_index import Sample, expand_shards, index_shard
from acclimate.errors import AcclimateError

__all__ = ["ShardSource", "expand_shards"]

_AT_ONCE = 1024


class ShardSource(ImageSource):
    """The samples of uncompressed tar files, in the order they are packed.

    A sample is the files that share a name up to its first dot: one picture and, if known, its
    class number in a ``.cls`` (text) or a ``.json`` (``{"label": 3}``); where no sample has one,
    folders within the tars that name classes give labels, as on disk. Opening looks through each
    tar once and decodes every picture: what cannot be decoded is left out (``skipped``), the
    rest is hashed, and kept in memory if all of it fits ``cache`` bytes. ``labels`` overrides
    those found, one per sample, readable or not. Pictures are named ``shard.tar/sample``.
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

        self._preprocessing = preprocessing
        size = len(samples) * int(np.prod(preprocessing.shape))
        fits = size <= cache_budget(cache)
        self._cached = np.empty((len(samples), *preprocessing.shape), np.uint8) if fits else None
        results = _decode_all(samples, preprocessing, into=self._cached, progress=progress)
        self._rows = np.array(
            [row for row, result in enumerate(results) if isinstance(result, bytes)], np.int64
        )
        all_names = _names(samples)
        skipped = [
            Skipped(name, result)
            for name, result in zip(all_names, results, strict=True)
            if isinstance(result, str)
        ]
        if not len(self._rows):
            first = "; ".join(f"{item.name}: {item.reason}" for item in skipped[:3])
            raise AcclimateError(f"none of the {len(skipped)} samples can be read ({first})")
        self._samples = [samples[row] for row in self._rows]
        self._fingerprint = digest(
            part
            for sample, row in zip(self._samples, self._rows, strict=True)
            for part in (sample.key.encode("utf-8", "surrogateescape"), _content(results[row]))
        )
        super().__init__(
            names=[all_names[row] for row in self._rows],
            labels=None if known is None else known[torch.from_numpy(self._rows)],
            class_names=class_names,
            preprocessing=preprocessing,
            skipped=skipped,
        )

    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers, N×C×H×W uint8, decoded again if they were not kept."""
        if self._cached is not None:
            return torch.from_numpy(self._cached[self._rows[indices.numpy()]])
        chosen = [self._samples[index] for index in indices.tolist()]
        images = np.empty((len(chosen), *self._preprocessing.shape), np.uint8)
        results = _decode_all(chosen, self._preprocessing, into=images, progress=False)
        for sample, result in zip(chosen, results, strict=True):
            if isinstance(result, str):
                raise AcclimateError(
                    f"{sample.key} in {sample.shard} could be read when the shard was opened, but "
                    f"not any more: {result}; put the shard back, or start again"
                )
        return torch.from_numpy(images)

    def fingerprint(self) -> str:
        """A digest of the samples' names and the contents of their pictures.

        Shards do not count: the same samples packed into more or fewer files are the same data.
        """
        return self._fingerprint


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


def _decode_all(
    samples: Sequence[Sample],
    preprocessing: Preprocessing,
    *,
    into: NDArray[np.uint8] | None,
    progress: bool,
) -> list[bytes | str]:
    """For each sample a digest of its picture's file, or what was wrong with it."""

    def work(row: int) -> bytes | str:
        sample = samples[row]
        if sample.problem is not None:
            return sample.problem
        try:
            with sample.shard.open("rb") as file:
                file.seek(sample.offset)
                data = file.read(sample.size)
            picture = decode(data, preprocessing)
        except OSError as error:
            return error.strerror or str(error)
        except UnreadableImageError as error:
            return str(error)
        if into is not None:
            into[row] = picture
        return hashlib.blake2b(data, digest_size=16).digest()

    results: list[bytes | str] = []
    workers = min(len(samples), os.cpu_count() or 1, 32)
    with (
        ThreadPoolExecutor(max(1, workers)) as pool,
        tqdm(total=len(samples), desc="images", unit="", delay=1, disable=not progress) as bar,
    ):
        # In portions, so that an interrupt does not wait for a million queued pictures.
        for start in range(0, len(samples), _AT_ONCE):
            for result in pool.map(work, range(start, min(start + _AT_ONCE, len(samples)))):
                results.append(result)
                bar.update()
    return results


def _content(result: bytes | str) -> bytes:
    return result if isinstance(result, bytes) else b""
