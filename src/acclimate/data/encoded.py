"""Pictures that lie somewhere as encoded files: checked once at opening, kept where they fit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from acclimate.data.base import ImageSource, Skipped, digest
from acclimate.data.decode import UnreadableImageError, decode
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.metrics import Scoring

__all__ = ["EncodedSource"]

_AT_ONCE = 1024


class EncodedSource(ImageSource):
    """Pictures behind a function that fetches the bytes of each.

    Opening fetches every picture once: what cannot be decoded is left out (``skipped``), the rest
    is hashed, and kept in memory if all of it fits ``cache`` bytes.

    Args:
        fetch: the bytes of picture number ``i``. May raise OSError or UnreadableImageError, and is
            called from several threads.
        names: one for each picture, readable or not.
        where: the place they lie in, for messages.
        marks: what of a name counts for the fingerprint; None is all of it.
        preprocessing: how the model was fed.
        labels: class numbers, one for each name.
        class_names: as for any source.
        scoring: as for any source.
        cache: bytes of pictures to keep; None is a third of what is available.
        progress: show a bar on stderr.
    """

    def __init__(
        self,
        fetch: Callable[[int], bytes],
        *,
        names: Sequence[str],
        where: str,
        preprocessing: Preprocessing,
        marks: Sequence[str] | None = None,
        labels: Tensor | None = None,
        class_names: Sequence[str] | None = None,
        scoring: Scoring | None = None,
        cache: int | None = None,
        progress: bool = True,
    ) -> None:
        self._fetch, self._where, self._preprocessing = fetch, where, preprocessing
        size = len(names) * int(np.prod(preprocessing.shape))
        fits = size <= cache_budget(cache)
        self._cached = np.empty((len(names), *preprocessing.shape), np.uint8) if fits else None
        results = self._decode(range(len(names)), into=self._cached, progress=progress)
        # Pictures stay in the rows they were decoded to; gaps are cheaper than moving them all.
        self._rows = np.array([i for i, r in enumerate(results) if r.error is None], dtype=np.int64)
        skipped = [
            Skipped(name, result.error)
            for name, result in zip(names, results, strict=True)
            if result.error is not None
        ]
        if not len(self._rows):
            first = "; ".join(f"{item.name}: {item.reason}" for item in skipped[:3])
            count = f"none of the {len(skipped)} images in {where}"
            raise AcclimateError(f"{count} can be read ({first})")
        marks = names if marks is None else marks
        self._fingerprint = digest(
            part
            for row in self._rows
            for part in (marks[row].encode("utf-8", "surrogateescape"), results[row].content)
        )
        super().__init__(
            names=[names[row] for row in self._rows],
            labels=None if labels is None else labels[torch.from_numpy(self._rows)],
            class_names=class_names,
            preprocessing=preprocessing,
            skipped=skipped,
            scoring=scoring,
        )

    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers, N×C×H×W uint8, decoded again if they were not kept."""
        rows = self._rows[indices.numpy()]
        if self._cached is not None:
            return torch.from_numpy(self._cached[rows])
        images = np.empty((len(rows), *self._preprocessing.shape), np.uint8)
        results = self._decode(rows.tolist(), into=images, progress=False)
        for index, result in zip(indices.tolist(), results, strict=True):
            if result.error is not None:
                raise AcclimateError(
                    f"{self.names[index]} in {self._where} could be read at opening, but not any "
                    f"more: {result.error}; put it back, or start again without it"
                )
        return torch.from_numpy(images)

    def fingerprint(self) -> str:
        """A digest of the names and the contents of the files that were kept.

        Opening reads every byte anyway, so hashing contents costs next to nothing; unlike times
        of change it survives a copy to another machine and is not fooled by an edit.
        """
        return self._fingerprint

    def _decode(
        self, rows: Sequence[int], *, into: NDArray[np.uint8] | None, progress: bool
    ) -> list[_Checked]:
        """Decode in parallel (decoders release the lock), into an array if one is given."""

        def check(place: int) -> _Checked:
            try:
                data = self._fetch(rows[place])
                picture = decode(data, self._preprocessing)
            except OSError as error:
                return _Checked(error=error.strerror or str(error))
            except UnreadableImageError as error:
                return _Checked(error=str(error))
            if into is not None:
                into[place] = picture
            return _Checked(content=hashlib.blake2b(data, digest_size=16).digest())

        results: list[_Checked] = []
        workers = min(len(rows), _usable_cores(), 32)
        with (
            ThreadPoolExecutor(max(1, workers)) as pool,
            tqdm(total=len(rows), desc="images", unit="", delay=1, disable=not progress) as bar,
        ):
            # In portions, so that an interrupt does not wait for a million queued files.
            for start in range(0, len(rows), _AT_ONCE):
                for result in pool.map(check, range(start, min(start + _AT_ONCE, len(rows)))):
                    results.append(result)
                    bar.update()
        return results


def _usable_cores() -> int:
    # More threads than the cores this process may use only get in each other's way.
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


@dataclass(frozen=True)
class _Checked:
    """One file after reading: a digest of its content, or what was wrong with it."""

    content: bytes = b""
    error: str | None = None
