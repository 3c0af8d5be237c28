"""The folder of a run: whose it is, its checkpoint, and the finished result."""

from __future__ import annotations

import json
import time
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from acclimate import parallel
from acclimate.checkpoint import read_tensors, tensors_writer
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.files import json_writer, remove_partial, write_files
from acclimate.result import IDENTITY, AdaptationResult, saved_identity

if TYPE_CHECKING:
    from acclimate.adaptation.run import AdaptationRun

__all__ = ["RunFolder", "fingerprint"]

CHECKPOINT = "checkpoint.safetensors"


def fingerprint(tensors: Mapping[str, Any]) -> str:
    """A checksum of named tensors: the same weights, the same eight hex digits."""
    total = 0
    for name, tensor in sorted(tensors.items()):
        if not isinstance(tensor, Tensor):  # a module's own extra state
            continue
        total = zlib.crc32(name.encode(), total)
        plain = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        total = zlib.crc32(plain.numpy().data, total)
    return f"{total:08x}"


class RunFolder:
    """A folder that belongs to one run; the same run finds its checkpoint or result there again.

    Of several processes the main one writes, and reads for all.
    """

    def __init__(self, path: str | Path, identity: dict[str, Any], *, every: float = 30.0) -> None:
        self.path = Path(path)
        self.identity = json.loads(json.dumps(identity))
        self.every = every
        self._last = time.monotonic()
        parallel.on_main(self._claim)

    def _claim(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            remove_partial(self.path)  # of a run that was killed while it wrote
            contents = sorted(p.name for p in self.path.iterdir())
        except OSError as error:
            raise AcclimateError(
                f"cannot use {self.path} as output folder: {error.strerror}"
            ) from error
        if IDENTITY not in contents:
            if contents:
                raise AcclimateError(
                    f"the output folder {self.path} is not empty and holds no acclimate run "
                    f"({', '.join(contents[:3])}); choose another one"
                )
            write_files({self.path / IDENTITY: json_writer(self.identity)})
            return
        try:
            found = json.loads((self.path / IDENTITY).read_text())
        except (OSError, ValueError) as error:
            raise AcclimateError(f"cannot read {self.path / IDENTITY}: {error}") from error
        different = [
            k for k in self.identity if found.get(k) != self.identity[k] and k != "versions"
        ]
        if different:
            key, there, here = _first_difference(found, self.identity, different[0])
            raise AcclimateError(
                f"the output folder {self.path} holds another run, which differs in "
                f"{', '.join(different)} ({key}: there {there}, here {here}); "
                "choose another folder"
            )
        if found["versions"] != self.identity["versions"]:
            warnings.warn(
                f"the run in {self.path} began with other versions ({found['versions']}); "
                "it goes on, but its numbers may differ in the last digits",
                AcclimateWarning,
                stacklevel=2,
            )

    @property
    def finished(self) -> bool:
        """Whether this run's result is there, whole."""
        return parallel.on_main(lambda: saved_identity(self.path) is not None)

    def load(self, model: nn.Module, class_names: Sequence[str] | None) -> AdaptationResult:
        """The finished result."""
        return replace(AdaptationResult.load(self.path, model), class_names=class_names)

    def resume(self, run: AdaptationRun) -> bool:
        """Let a run go on from its checkpoint, if there is one."""
        stored = parallel.on_main(self._stored)
        if stored is None:
            return False
        run.load_state(*stored)
        return True

    def _stored(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        path = self.path / CHECKPOINT
        return read_tensors(path) if path.exists() else None

    def checkpoint(self, run: AdaptationRun) -> None:
        """Write a checkpoint if the last one is old enough."""
        if not parallel.is_main() or time.monotonic() - self._last < self.every:
            return
        try:
            write_files({self.path / CHECKPOINT: tensors_writer(*run.state())})
        except AcclimateError as error:  # an hour of learning is worth more than its checkpoint
            warnings.warn(f"{error}; the run goes on without", AcclimateWarning, stacklevel=2)
        self._last = time.monotonic()

    def finish(self, result: AdaptationResult) -> None:
        """Write the result; the checkpoint has done its work."""

        def write() -> None:
            result.save(self.path)
            (self.path / CHECKPOINT).unlink(missing_ok=True)

        parallel.on_main(write)


def _first_difference(there: Any, here: Any, key: str) -> tuple[str, str, str]:
    """The first option in which two records differ, down to the innermost, and both values."""
    one, other = there.get(key), here.get(key)
    if isinstance(one, dict) and isinstance(other, dict):
        inner = next(k for k in {**one, **other} if one.get(k) != other.get(k))
        path, *values = _first_difference(one, other, inner)
        return f"{key}.{path}", values[0], values[1]
    return key, json.dumps(one), json.dumps(other)
