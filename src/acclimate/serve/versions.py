"""Versions of an adapting model: written whole or not at all, and one of them is served."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from acclimate.checkpoint import read_record, read_tensors, tensors_writer
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.files import json_writer, remove_partial, write_files
from acclimate.lock import claimed
from acclimate.reading import read_object
from acclimate.text import first_difference, user_path

__all__ = ["Cause", "NoVersionError", "Version", "Versions"]

Cause = Literal["start", "learning", "rollback", "reset", "guard"]

STATE = "state.json"
LOG = "log.jsonl"
LARGEST_LOG = 2**23
"""Bytes; then a new one is begun, and the one before kept."""

_FILE = re.compile(r"version-(\d{8,})\.safetensors")


class NoVersionError(AcclimateError):
    """There is no version of this number, or no longer."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One state of the model, by its number; the highest number is the one that is served.

    Going back makes a new version too, of ``restored_from``: the list is the log.

    Attributes:
        number: 0 is the source model.
        cause: what made it.
        created: when, with the time zone.
        step: learning steps up to here.
        images: images learnt from up to here.
        drift: how far the learning parameters moved, as a share of their norm.
        statistics_shift: how far the images' batch-norm statistics are from the source's, in
            standard deviations; None where there are none.
        changed: share of recent images that it predicts another class for than the source model.
        error_before: the source model's error on recent images in percent, estimated without
            labels; None where it could not be.
        error_after: the same of the adapting model.
        temperature: of calibrated probabilities, by that estimate.
        adapted: whether any weight differs from the source model's.
        restored_from: the version whose weights these are.
        reason: what the guard saw, where that made it.
    """

    number: int
    cause: Cause
    created: str
    step: int = 0
    images: int = 0
    drift: float = 0.0
    statistics_shift: float | None = None
    changed: float | None = None
    error_before: float | None = None
    error_after: float | None = None
    temperature: float | None = None
    adapted: bool = False
    restored_from: int | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def now() -> str:
    """This moment, with the time zone."""
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


class Versions:
    """The versions in a folder, or in memory where there is none.

    A version is one file that appears whole, so a process that is killed leaves the version before.
    The folder belongs to one source model and recipe (``identity``) and, while it is open, to one
    process. Version 0 and the last ``keep`` are kept.

    >>> versions = Versions(None, identity={"model": "net"}, keep=2)
    >>> for number in range(5):
    ...     versions.add(Version(number=number, cause="learning", created=now()), {})
    >>> [version.number for version in versions.list()]
    [0, 3, 4]
    """

    def __init__(
        self, folder: str | Path | None, *, identity: Mapping[str, Any], keep: int
    ) -> None:
        self.folder = None if folder is None else user_path(folder)
        self.keep = keep
        self._identity: dict[str, Any] = json.loads(json.dumps(identity, default=str))
        self._memory: dict[int, Mapping[str, Tensor]] = {}
        self._known: dict[int, Version] = {}
        self._lock = ExitStack()
        if self.folder is not None:
            self._open(self.folder)

    def _open(self, folder: Path) -> None:
        with self._lock:  # a folder that is refused is not held
            self._lock.enter_context(claimed(folder))
            remove_partial(folder)
            for path in sorted(folder.iterdir()):
                named = _FILE.fullmatch(path.name)
                if named is None:
                    continue
                try:
                    record = read_record(path)
                    version = Version(**record["version"])
                    identity = record["identity"]
                except (AcclimateError, KeyError, TypeError) as error:
                    warnings.warn(
                        f"{path} is damaged and left out: {error}", AcclimateWarning, stacklevel=4
                    )
                    continue
                if identity != self._identity:
                    key, there, here = first_difference(identity, self._identity)
                    raise AcclimateError(
                        f"the folder {folder} holds versions of another model or recipe "
                        f"({key}: there {there:.80}, here {here:.80}); choose another --state"
                    )
                self._known[version.number] = version
            self._lock = self._lock.pop_all()

    def close(self) -> None:
        """Let another process have the folder."""
        self._lock.close()

    def list(self) -> list[Version]:
        """All that are kept, oldest first."""
        return [version for _, version in sorted(self._known.items())]  # while others add

    @property
    def newest(self) -> Version | None:
        """The one that is served."""
        return self._known[max(self._known)] if self._known else None

    @property
    def next_number(self) -> int:
        """The number of the version to come."""
        return max(self._known, default=-1) + 1

    def add(self, version: Version, tensors: Mapping[str, Tensor]) -> None:
        """Write a version; once it is there, the oldest that are too many go."""
        if self.folder is None:
            self._memory[version.number] = {k: v.detach().clone() for k, v in tensors.items()}
        else:
            record = {"version": version.to_dict(), "identity": self._identity}
            write_files({self._path(version.number): tensors_writer(tensors, record)})
        self._known[version.number] = version
        for number in sorted(n for n in self._known if n)[: -self.keep]:
            del self._known[number]
            self._memory.pop(number, None)
            if self.folder is not None:
                self._path(number).unlink(missing_ok=True)

    def log(self, what: str, **values: Any) -> None:
        """Add a line to the log of the folder: it remembers what versions that are gone cannot."""
        if self.folder is None:
            return
        path = self.folder / LOG
        try:
            if path.exists() and path.stat().st_size > LARGEST_LOG:
                path.replace(path.with_suffix(".1.jsonl"))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"time": now(), "what": what, **values}) + "\n")
        except OSError as error:
            raise AcclimateError(f"cannot write {path}: {error.strerror or error}") from error

    def read(self, number: int) -> dict[str, Tensor]:
        """The tensors of a version."""
        self.check(number)
        if self.folder is None:
            return {k: v.clone() for k, v in self._memory[number].items()}
        return read_tensors(self._path(number))[0]

    def check(self, number: int) -> Version:
        """The version of this number; an error names those that there are."""
        if number not in self._known:
            kept = ", ".join(map(str, sorted(self._known))) or "none"
            raise NoVersionError(f"no version {number}; kept are {kept}")
        return self._known[number]

    def forget(self, number: int) -> None:
        """Leave out a version whose file turned out to be damaged."""
        self._known.pop(number, None)

    def _path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"version-{number:08}.safetensors"

    # Whether learning is paused outlives the process: who paused had a reason.

    @property
    def paused(self) -> bool:
        """Whether an operator paused learning."""
        if self.folder is None or not (self.folder / STATE).exists():
            return False
        return bool(read_object(self.folder / STATE, "paused")["paused"])

    def remember_paused(self, paused: bool) -> None:
        """Write it down."""
        self.log("pause" if paused else "resume")
        if self.folder is not None:
            write_files({self.folder / STATE: json_writer({"paused": paused})})
