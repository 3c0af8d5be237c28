"""JSON, YAML, CSV and text from files anyone may have written: with limits, and clear errors."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from acclimate.errors import AcclimateError
from acclimate.text import plain_cell

__all__ = ["parse_json", "read_csv", "read_json", "read_object", "read_text", "read_yaml"]

LARGEST = 2**28
"""Bytes of a file."""
LARGEST_YAML = 2**20
"""Bytes of a YAML file: its reader takes seconds for a megabyte."""
DEEPEST = 100
"""Lists and mappings within each other."""
MOST_NODES = 100_000
"""Values of a YAML file, with every alias written out."""
LONGEST_NUMBER = 400
"""Characters of a number in a YAML file: enough for any float; longer ones take long to read."""


def read_text(path: Path, *, largest: int = LARGEST, hint: str = "", errors: str = "strict") -> str:
    """The text of a UTF-8 file, its line ends unchanged; ``hint`` ends the message of an error."""
    try:
        with path.open("rb") as file:
            content = file.read(largest + 1)
        if len(content) > largest:
            raise AcclimateError(
                f"cannot read {path}: expected at most {largest:,} bytes, got more{hint}"
            )
        return content.decode("utf-8", errors)
    except OSError as error:
        raise AcclimateError(f"cannot read {path}: {error.strerror or error}{hint}") from error
    except UnicodeDecodeError as error:
        raise AcclimateError(f"cannot read {path}: it is not UTF-8 text{hint}") from error


def parse_json(text: str, where: object, *, hint: str = "") -> Any:
    """The value of a JSON text that came from ``where``.

    >>> parse_json("[" * 1000, "plan.json")
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected JSON in plan.json, got lists and mappings more than
    100 deep
    """
    try:
        value = json.loads(text)
        _refuse_deep(value)
    except (RecursionError, ValueError) as error:
        found = _TOO_DEEP if isinstance(error, RecursionError) else error
        raise AcclimateError(f"expected JSON in {where}, got {found}{hint}") from error
    return value


_DAMAGED = "; it is damaged"
_TOO_DEEP = f"lists and mappings more than {DEEPEST} deep"


def _refuse_deep(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def read_json(path: Path, *, hint: str = "") -> Any:
    """The value in a JSON file."""
    return parse_json(read_text(path, hint=hint), path, hint=hint)


def read_object(path: Path, *keys: str, hint: str = "") -> dict[str, Any]:
    """The mapping in a JSON file, which has these keys."""
    value = read_json(path, hint=hint)
    if not isinstance(value, dict):
        raise AcclimateError(
            f"expected a JSON object in {path}, got {json.dumps(value):.40}{hint or _DAMAGED}"
        )
    for key in keys:
        if key not in value:
            raise AcclimateError(f"expected {key!r} in {path}, got none{hint or _DAMAGED}")
    return value


def read_csv(path: Path, *columns: str) -> list[dict[str, str]]:
    """The rows of a CSV file that `acclimate.files.csv_writer` wrote, all with these columns."""
    text = read_text(path, largest=16 * LARGEST, errors="surrogateescape")
    try:
        head, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        found = [dict(zip(head, map(plain_cell, row), strict=True)) for row in rows]
    except (csv.Error, ValueError) as error:
        raise AcclimateError(f"expected a table in {path}, got: {error}{_DAMAGED}") from error
    if missing := [column for column in columns if column not in head]:
        raise AcclimateError(f"expected the column {missing[0]!r} in {path}, got none{_DAMAGED}")
    return found


def read_yaml(path: Path, *, hint: str = "") -> Any:
    """The plain value in a YAML file. Aliases may repeat what is small, and not refer in a ring."""
    import yaml

    text = read_text(path, largest=LARGEST_YAML, hint=hint)
    try:
        value = yaml.load(text, _limited_loader())
        _refuse_deep(value)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        words = " ".join(str(error).split())
        raise AcclimateError(f"{path} is not YAML: {words:.300}{hint}") from error
    return value


_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def _limited_loader() -> Any:
    import yaml

    class Limited(yaml.SafeLoader):  # type: ignore[misc]
        """Counts values while it builds the tree, before any of them are made."""

        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self._deep = self._nodes = 0
            self._sizes: dict[int, int] = {}

        def compose_node(self, parent: Any, index: Any) -> Any:
            alias, before = self.check_event(yaml.AliasEvent), self._nodes
            self._deep += 1
            self._nodes += 1
            self._refuse_more()
            node = super().compose_node(parent, index)
            self._deep -= 1
            if node.tag in _NUMBERS and len(node.value) > LONGEST_NUMBER:
                raise yaml.YAMLError(f"a number of more than {LONGEST_NUMBER} characters")
            if alias and id(node) not in self._sizes:
                raise yaml.YAMLError("an alias that refers to what it is a part of")
            if alias:
                self._nodes += self._sizes[id(node)]
                self._refuse_more()
            else:
                self._sizes[id(node)] = self._nodes - before
            return node

        def _refuse_more(self) -> None:
            if self._deep > DEEPEST:
                raise yaml.YAMLError(_TOO_DEEP)
            if self._nodes > MOST_NODES:
                raise yaml.YAMLError(f"more than {MOST_NODES:,} values (aliases written out)")

    return Limited
