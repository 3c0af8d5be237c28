"""The manifest of a data set we made: from what, with which seed and constants, how far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acclimate._version import __version__
from acclimate.checkpoint import json_writer, write_files
from acclimate.data.corruptions import Preset, constants, frost_kind
from acclimate.errors import AcclimateError

__all__ = ["MANIFEST", "Manifest"]

MANIFEST = "manifest.json"
# What has to be the same for two calls to add to one data set.
_IDENTITY = ("preset", "seed", "images", "source", "shape", "storage")


class Manifest:
    """The record beside the data, and the guard against mixing two data sets in one folder."""

    def __init__(
        self,
        out: Path,
        *,
        preset: Preset,
        seed: int,
        images: int,
        source: str,
        shape: tuple[int, ...],
        storage: str,
    ) -> None:
        self._path = out / MANIFEST
        fresh: dict[str, Any] = {
            "format": 1,
            "acclimate": __version__,
            "preset": preset,
            "seed": seed,
            "images": images,
            "source": source,
            "shape": list(shape),
            "storage": storage,
            "constants": {},
            "finished": {},
        }
        self._record = self._existing(out, fresh) or fresh

    def _existing(self, out: Path, fresh: dict[str, Any]) -> dict[str, Any] | None:
        if not self._path.exists():
            if out.exists() and any(out.iterdir()):
                raise AcclimateError(
                    f"{out} is not empty and has no {MANIFEST}, so it was not made by acclimate "
                    "corrupt; choose another folder"
                )
            return None
        try:
            record = json.loads(self._path.read_text(encoding="utf-8"))
            differing = [key for key in _IDENTITY if record[key] != fresh[key]]
            finished = {name: list(done) for name, done in record["finished"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{self._path} cannot be read: {error}; choose another folder"
            raise AcclimateError(message) from error
        if differing:
            key = differing[0]
            raise AcclimateError(
                f"{out} was made with {key} {record[key]}, now it is {fresh[key]}; choose another "
                "folder, or remove that one"
            )
        return {**record, "finished": finished}

    def start(self, shifts: dict[str, tuple[int, ...]]) -> None:
        """Note the constants of what is about to be made, and write the manifest."""
        for name, severities in shifts.items():
            noted = self._record["constants"].setdefault(self.kind(name), {})
            for severity in severities:
                noted[str(severity)] = constants(name, severity, preset=self._record["preset"])
        self._write()

    def finish(self, name: str, severity: int) -> None:
        """Note that a part is complete."""
        done = self._record["finished"].setdefault(self.kind(name), [])
        self._record["finished"][self.kind(name)] = sorted({*done, severity})
        self._write()

    def is_finished(self, name: str, severity: int) -> bool:
        """Whether a part was completed before."""
        return severity in self._record["finished"].get(self.kind(name), [])

    @staticmethod
    def kind(name: str) -> str:
        """The name on disk: frost tells whose textures it was made with."""
        return frost_kind() if name == "frost" else name

    def _write(self) -> None:
        write_files({self._path: json_writer(self._record)})
