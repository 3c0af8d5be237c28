"""The manifest of a data set we made: from what, with which seed and constants, how far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from acclimate._version import __version__
from acclimate.data.base import ImageSource, digest
from acclimate.data.corruptions import Preset, constants, named_in_results
from acclimate.errors import AcclimateError
from acclimate.files import json_writer, write_files

__all__ = ["MANIFEST", "Manifest", "check_folder"]

MANIFEST = "manifest.json"
FORMAT = 1
"""Raised when the same call would write other pictures, so that the two are not mixed."""

# What has to be the same for two calls to add to one data set, and what to call it.
_IDENTITY = {
    "format": "format",
    "preset": "preset",
    "seed": "seed",
    "images": "number of images",
    "source": "pictures (by their digest)",
    "labels": "labels (by their digest)",
    "prepared": "preparation",
    "storage": "storage",
}


def check_folder(out: Path) -> None:
    """Refuse a place that holds something else, before any work is done."""
    try:
        foreign = out.exists() and not (out / MANIFEST).exists() and any(out.iterdir())
    except NotADirectoryError:
        raise AcclimateError(f"expected a folder to write to, but {out} is a file") from None
    if foreign:
        raise AcclimateError(
            f"{out} is not empty and has no {MANIFEST}, so it was not made by acclimate corrupt; "
            "choose another folder"
        )


class Manifest:
    """The record beside the data, and the guard against mixing two data sets in one folder."""

    def __init__(
        self,
        out: Path,
        *,
        preset: Preset,
        seed: int,
        source: ImageSource,
        labels: Tensor | None,
        classes: Sequence[str] | None,
        storage: str,
    ) -> None:
        self._path = out / MANIFEST
        self._record: dict[str, Any] = {
            "format": FORMAT,
            "acclimate": __version__,
            "preset": preset,
            "seed": seed,
            "images": len(source),
            "source": source.fingerprint(),
            "labels": None if labels is None else digest([labels.numpy().tobytes()]),
            "classes": None if classes is None else list(classes),
            "prepared": source.preprocessing.describe() if source.preprocessing else None,
            "storage": storage,
            "constants": {},
            "finished": {},
        }
        if self._path.exists():
            self._take_over(out)

    def _take_over(self, out: Path) -> None:
        try:
            there = json.loads(self._path.read_text(encoding="utf-8"))
            differing = [key for key in _IDENTITY if there[key] != self._record[key]]
            kept = {key: dict(there[key]) for key in ("constants", "finished")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"{self._path} cannot be read: {error!r}; choose another folder"
            raise AcclimateError(message) from error
        if differing:
            key = differing[0]
            raise AcclimateError(
                f"{out} was made with {_IDENTITY[key]} {there[key]}, now it is "
                f"{self._record[key]}; choose another folder, or remove that one"
            )
        self._record |= kept

    def start(self, shifts: dict[str, tuple[int, ...]]) -> None:
        """Note the constants of what is about to be made, and write the manifest."""
        for name, severities in shifts.items():
            noted = self._record["constants"].setdefault(named_in_results(name), {})
            for severity in severities:
                noted[str(severity)] = constants(name, severity, preset=self._record["preset"])
        self._write()

    def finish(self, name: str, severity: int) -> None:
        """Note that a part is complete. A record for people: what is there is seen on the disk."""
        finished = self._record["finished"]
        done = finished.get(named_in_results(name), [])
        finished[named_in_results(name)] = sorted({*done, severity})
        self._write()

    def _write(self) -> None:
        write_files({self._path: json_writer(self._record)})
