"""The results of an evaluation in one file, written anew after every part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acclimate.errors import AcclimateError
from acclimate.files import json_writer, write_files

__all__ = ["RESULTS", "ResultFile"]

RESULTS = "evaluation.json"


class ResultFile:
    """``evaluation.json``: what was evaluated, and each part's result. Without a folder, memory."""

    def __init__(self, folder: Path | None, identity: dict[str, Any]) -> None:
        self._path = None if folder is None else folder / RESULTS
        self._identity = identity
        self.results: dict[str, dict[str, Any]] = {}
        if self._path is not None:
            self._claim(self._path)

    def _claim(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8") if path.exists() else None
            there = None if text is None else json.loads(text)
            if there is not None:
                self.results = {part["name"]: part["result"] for part in there["parts"]}
                differing = [k for k, v in self._identity.items() if there["run"].get(k) != v]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AcclimateError(
                f"{path} cannot be used: {error}; choose another folder"
            ) from error
        if there is not None and differing:
            key = differing[0]
            raise AcclimateError(
                f"{path} holds another evaluation ({key}: {there['run'].get(key)!r:.60}, now "
                f"{self._identity[key]!r:.60}); choose another folder"
            )

    def has(self, name: str) -> bool:
        """Whether a part was done before."""
        return name in self.results

    def add(self, name: str, result: dict[str, Any]) -> None:
        """Keep a part's result; on the disk, if there is a folder, before this returns."""
        self.results[name] = result
        if self._path is not None:
            parts = [{"name": each, "result": kept} for each, kept in self.results.items()]
            write_files({self._path: json_writer({"run": self._identity, "parts": parts})})
