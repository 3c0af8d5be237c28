"""Results as files for others: CSV, Parquet, and JSON that a store takes back whole."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from acclimate.errors import AcclimateError
from acclimate.experiments._schema import COLUMNS, row_of
from acclimate.experiments.result import Result
from acclimate.files import Writer, text_writer, write_files

__all__ = ["FORMATS", "export", "export_all", "read_json"]

_FORMAT = "acclimate-results"
_VERSION = 1
_NAMES = [name.strip('"') for name in COLUMNS]


def export(results: Sequence[Result], path: str | Path) -> Path:
    """Write results to a .csv, .json or .parquet file; it is whole or not there.

    JSON holds all there is, and ``Store.merge`` takes it back. CSV and Parquet have the columns
    that can be queried, and the records as JSON in the last one.

    >>> import tempfile
    >>> from acclimate.experiments import Job
    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="ent")
    >>> results = [Result(job=job, record={"errors": {"final": 7.5}})]
    >>> read_json(export(results, Path(tempfile.mkdtemp()) / "all.json")) == results
    True
    """
    return export_all(results, [path])[0]


def export_all(results: Sequence[Result], paths: Sequence[str | Path]) -> list[Path]:
    """Write results to several files, as `export` does one; all or none."""
    files = [Path(path).expanduser() for path in paths]
    for file, path in zip(files, paths, strict=True):
        if file.suffix.lower() not in FORMATS:
            raise AcclimateError(f"expected a file ending in {', '.join(FORMATS)}, got {path}")
    write_files({file: FORMATS[file.suffix.lower()](results) for file in files})
    return files


def read_json(path: str | Path) -> list[Result]:
    """The results of a JSON file that :func:`export` wrote."""
    file = Path(path).expanduser()
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AcclimateError(f"cannot read results from {path}: {error}") from error
    if not isinstance(plain, dict) or plain.get("format") != _FORMAT:
        raise AcclimateError(f"expected results that were exported as JSON, got {path}")
    version, results = plain.get("version"), plain.get("results")
    if not isinstance(version, int) or not isinstance(results, list):
        raise AcclimateError(f"{path} is damaged: expected its version and a list of results")
    if version > _VERSION:
        raise AcclimateError(f"{path} was written by a newer acclimate; update this one")
    try:
        return [Result.from_dict(each) for each in results]
    except (AttributeError, KeyError, TypeError) as error:
        raise AcclimateError(f"{path} is damaged: {error!r} in one of its results") from error


def _to_json(results: Sequence[Result]) -> Writer:
    plain = {
        "format": _FORMAT,
        "version": _VERSION,
        "results": [result.to_dict() for result in results],
    }
    return text_writer(json.dumps(plain, indent=1) + "\n")


def _to_csv(results: Sequence[Result]) -> Writer:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_NAMES)
    rows.writerows(map(row_of, results))
    return text_writer(text.getvalue())


def _to_parquet(results: Sequence[Result]) -> Writer:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise AcclimateError(
            "Parquet needs pyarrow: pip install 'acclimate[parquet]'; or export to .csv or .json"
        ) from error
    kinds = {"TEXT": arrow.string(), "INTEGER": arrow.int64(), "REAL": arrow.float64()}
    schema = arrow.schema(
        [(n, kinds[kind.split()[0]]) for n, kind in zip(_NAMES, COLUMNS.values(), strict=True)]
    )
    rows: list[dict[str, Any]] = [dict(zip(_NAMES, row_of(r), strict=True)) for r in results]
    table = arrow.Table.from_pylist(rows, schema=schema)

    def write(path: Path) -> None:
        parquet.write_table(table, path)

    return write


FORMATS = {".csv": _to_csv, ".json": _to_json, ".parquet": _to_parquet}
"""What each ending is written by."""
