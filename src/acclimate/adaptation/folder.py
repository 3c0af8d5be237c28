"""The folder of a run: whose it is, its checkpoint, and the finished result."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from acclimate import parallel
from acclimate.checkpoint import read_checkpoint, remove_checkpoint, write_checkpoint
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.files import json_writer, remove_partial, write_files
from acclimate.lock import LOCK, claimed
from acclimate.reading import read_object
from acclimate.result import RECORD, AdaptationResult, RunRecord, stored_run
from acclimate.text import first_difference

__all__ = ["CHECKPOINT", "RunFolder", "State"]

CHECKPOINT = "checkpoint.safetensors"

State: TypeAlias = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors and a JSON record from which a run resumes."""


class RunFolder:
    """A folder that belongs to one run; the same run finds its checkpoint or result there again.

    It is held, against any other process, until it is closed. Of several processes in a group the
    main one writes, and reads for all.
    """

    def __init__(self, path: str | Path, record: RunRecord, *, every: float = 30.0) -> None:
        self.path = Path(path)
        self.every = every
        self._written = time.monotonic()
        self._lock = ExitStack()
        plain = record.to_dict()
        RunRecord.from_dict(plain)  # what could not be read back is refused before the work
        parallel.on_main(lambda: self._claim(plain))

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _claim(self, record: dict[str, Any]) -> None:
        with self._lock:  # a folder that is refused is not held
            self._lock.enter_context(claimed(self.path))
            self._check(record)
            self._lock = self._lock.pop_all()

    def _check(self, record: dict[str, Any]) -> None:
        try:
            remove_partial(self.path)  # of a run that was killed while it wrote
            contents = sorted(p.name for p in self.path.iterdir() if p.name != LOCK)
        except OSError as error:
            raise AcclimateError(
                f"cannot use {self.path} as output folder: {error.strerror}"
            ) from error
        if RECORD not in contents:
            if contents:
                raise AcclimateError(
                    f"the output folder {self.path} is not empty and holds no acclimate run "
                    f"({', '.join(contents[:3])}); choose another one"
                )
            write_files({self.path / RECORD: json_writer(record)})
            return
        found = read_object(self.path / RECORD, "versions", hint="; choose another folder")
        found = {"estimate": True, "options": {}, "plan": [], **found}  # runs of 0.1 have none
        different = [k for k in record if found.get(k) != record[k] and k != "versions"]
        if different:
            key, there, here = first_difference(
                {k: found.get(k) for k in different}, {k: record[k] for k in different}
            )
            raise AcclimateError(
                f"the output folder {self.path} holds another run, which differs in "
                f"{', '.join(different)} ({key}: there {there}, here {here}); "
                "choose another folder"
            )
        if found["versions"] != record["versions"]:
            warnings.warn(
                f"the run in {self.path} began with other versions ({found['versions']}); "
                "it resumes, but its numbers may differ in the last digits",
                AcclimateWarning,
                stacklevel=2,
            )

    def result(
        self, model: nn.Module, class_names: Sequence[str] | None
    ) -> AdaptationResult | None:
        """The finished result, loaded into ``model``; None where the run has not finished."""
        if not parallel.on_main(lambda: stored_run(self.path) is not None):
            return None
        return replace(AdaptationResult.load(self.path, model), class_names=class_names)

    def resume(self, load: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> bool:
        """Load the checkpoint that a killed run left; False where there is none."""
        path = self.path / CHECKPOINT
        try:
            state = parallel.on_main(lambda: read_checkpoint(path))
            if state is not None:
                load(*state)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # as many kinds as there are kinds of state
            reason = error if isinstance(error, AcclimateError) else f"{path}: {error!r}"
            raise AcclimateError(
                f"expected the state of this run, got one that is damaged or of another: {reason}; "
                f"remove {CHECKPOINT} to start from the beginning"
            ) from error
        return state is not None

    def write_checkpoint(self, state: Callable[[], State]) -> None:
        """Write a checkpoint if the last one is old enough."""
        if not parallel.is_main() or time.monotonic() - self._written < self.every:
            return
        try:
            write_checkpoint(self.path / CHECKPOINT, *state())
        except AcclimateError as error:  # an hour of learning is worth more than its checkpoint
            warnings.warn(f"{error}; the run continues without it", AcclimateWarning, stacklevel=2)
        self._written = time.monotonic()

    def finish(self, result: AdaptationResult) -> None:
        """Write the result; the checkpoint has done its work."""

        def write() -> None:
            result.save(self.path)
            remove_checkpoint(self.path / CHECKPOINT)

        parallel.on_main(write)
