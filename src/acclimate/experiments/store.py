"""The store: results in one SQLite file, each whole or not there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from acclimate.errors import AcclimateError
from acclimate.experiments._conditions import Condition, column_sql, where_sql
from acclimate.experiments._connection import connected, create_store, transaction
from acclimate.experiments._frame import Frame
from acclimate.experiments._schema import COLUMNS, result_of, row_of
from acclimate.experiments.export import read_json
from acclimate.experiments.result import Result

__all__ = ["Added", "RefusedResultError", "Store"]

_CHUNK = 500  # values in one statement; SQLite takes at least 999
_WHOLE = "job, status, record, message, created"
_OTHER = (
    "SELECT data, model FROM results WHERE dataset = ? AND shift IS ? AND images IS ? "
    "AND split IS ? AND preprocessing IS ? AND setting IS ? AND data"
)
_MODEL = (
    "SELECT json_extract(record, '$.weights') AS found FROM results WHERE model = ? "
    "AND weights IS ? AND found {} LIMIT 1"
)
_FILE = list(COLUMNS).index("weights")
_INSERT = f"INSERT OR REPLACE INTO results VALUES ({', '.join('?' * len(COLUMNS))})"


class RefusedResultError(AcclimateError):
    """A result of other images, or of other weights, than a store has under the same words."""


@dataclass(frozen=True, kw_only=True)
class Added:
    """How many results were new, took the place of a failed one, or were there already."""

    new: int = 0
    replaced: int = 0
    kept: int = 0


class Store:
    """Results by the keys of their jobs.

    A done result is never replaced, a failed one is. Nothing is held between calls but the path, so
    that a store can be sent to other processes, and as many as like may add at once. The file must
    lie on a disk of the machine: SQLite's locks do not hold on a network's.

    Args:
        path: the file; a new one is made where there is none.
        create: False refuses a path where nothing is.

    >>> import tempfile
    >>> from acclimate.experiments import Job
    >>> store = Store(Path(tempfile.mkdtemp()) / "results.db")
    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="ent")
    >>> store.add(Result(job=job, record={"errors": {"final": 7.5}}))
    True
    >>> store.get(job.key).error, store.has([job.key]) == {job.key}, len(store)
    (7.5, True, 1)
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = Path(path).expanduser()
        if create:
            create_store(self.path)
        with connected(self.path, write=False):
            pass

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def __len__(self) -> int:
        return int(self._fetch("SELECT count(*) FROM results")[0][0])

    def add(self, result: Result) -> bool:
        """Keep a result; on the disk before this returns. False where a done one is there.

        Raises:
            RefusedResultError: where results for the same data set, shift and number of images are
                of other images or labels, or those for the same model of other weights.
        """
        added = self.add_all([result])
        return not added.kept

    def add_all(self, results: Iterable[Result]) -> Added:
        """Keep several results, all or none."""
        new = replaced = kept = 0
        with transaction(self.path) as connection:
            for result in results:
                found = connection.execute(
                    "SELECT status FROM results WHERE key = ?", (result.key,)
                ).fetchone()
                # A job that fails the second time says nothing about the first.
                if found is not None and found[0] == "done":
                    kept += 1
                    continue
                _refuse_other_data(connection, result, self.path)
                row = row_of(result)
                _refuse_other_model(connection, result, row[_FILE], self.path)
                connection.execute(_INSERT, row)
                new, replaced = new + (found is None), replaced + (found is not None)
        return Added(new=new, replaced=replaced, kept=kept)

    def check_writable(self) -> None:
        """Refuse a file that cannot be written to, before anything is computed."""
        with transaction(self.path):
            pass

    def get(self, key: str) -> Result | None:
        """The result of a job, done or failed; None where there is none."""
        found = self._fetch(f"SELECT {_WHOLE} FROM results WHERE key = ?", (key,))
        return result_of(*found[0]) if found else None

    def has(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have a done result."""
        return set(self._among(keys, "key", "AND status = 'done'"))

    def done_keys(self) -> set[str]:
        """The keys of all done results."""
        return {row[0] for row in self._fetch("SELECT key FROM results WHERE status = 'done'")}

    def failed(self) -> dict[str, str]:
        """Why, for each key whose result is a failed one."""
        return dict(self._fetch("SELECT key, message FROM results WHERE status = 'failed'"))

    def results(self, conditions: Sequence[Condition] = ()) -> list[Result]:
        """Whole results, oldest first."""
        where, values = where_sql(conditions)
        rows = self._fetch(f"SELECT {_WHOLE} FROM results {where} ORDER BY created, key", values)
        return [result_of(*row) for row in rows]

    def select(self, columns: Sequence[str], conditions: Sequence[Condition] = ()) -> Frame:
        """Some columns of the results, for `pivot` and the like.

        ``options.optimizer.lr`` is a column too.
        """
        where, values = where_sql(conditions)
        names = ", ".join(map(column_sql, columns))
        rows = self._fetch(f"SELECT {names} FROM results {where}", values)
        return Frame(columns=tuple(columns), rows=rows)

    def merge(self, other: str | Path) -> Added:
        """Add the results of another store, or of a JSON file that was exported; all or none."""
        path = Path(other).expanduser()
        if path.resolve() == self.path.resolve():
            raise AcclimateError(f"expected another store to merge, got {path} itself")
        return self.add_all(results_in(path))

    def _fetch(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with connected(self.path, write=False) as connection:
            return connection.execute(sql, values).fetchall()

    def _among(self, keys: Iterable[str], column: str, and_where: str) -> Iterator[Any]:
        rest = iter(dict.fromkeys(keys))
        with connected(self.path, write=False) as connection:
            while chunk := list(islice(rest, _CHUNK)):
                marks = ", ".join("?" * len(chunk))
                sql = f"SELECT {column} FROM results WHERE key IN ({marks}) {and_where}"
                yield from (row[0] for row in connection.execute(sql, chunk))


def results_in(path: str | Path) -> list[Result]:
    """The results of a store, or of a JSON file that was exported."""
    path = Path(path).expanduser()
    if path.suffix.lower() == ".json":
        return read_json(path)
    if path.suffix.lower() in (".csv", ".parquet"):
        raise AcclimateError(
            f"expected a store, or a .json that was exported of one, got {path}: what becomes a "
            "table of that kind is not whole"
        )
    return Store(path, create=False).results()


def _refuse_other_data(connection: sqlite3.Connection, result: Result, path: Path) -> None:
    """The same words must mean the same images everywhere in a store."""
    job, data = result.job, result.record.get("data")
    if data is None:
        return
    preprocessing = result.record.get("preprocessing")
    # A stream's pictures are joined, and have another digest than the shift's alone.
    same = (job.dataset, job.shift, job.images, job.split, preprocessing, job.setting, data)
    # Below and above apart, since SQLite looks up a range in an index, but not what is not equal.
    found = connection.execute(f"{_OTHER} < ? UNION ALL {_OTHER} > ? LIMIT 1", same * 2).fetchone()
    if found is not None:
        what = job.dataset if job.shift is None else f"{job.shift} of {job.dataset}"
        raise RefusedResultError(
            f"the store {path} has results from other data: the images or labels of {what} were "
            f"{found[0]} for {found[1]}, and are {data} now; mend the data, or choose another store"
        )


def _refuse_other_model(
    connection: sqlite3.Connection, result: Result, file: str | None, path: Path
) -> None:
    """The same name must mean the same weights: what py:net:build returns may change."""
    job, now = result.job, result.record.get("weights")
    if now is None:
        return
    if connection.execute(_MODEL.format("= ?"), (job.model, file, now)).fetchone() is not None:
        return
    found = connection.execute(_MODEL.format("IS NOT NULL"), (job.model, file)).fetchone()
    if found is not None:
        raise RefusedResultError(
            f"the store {path} has results from other weights of {job.model}: they were "
            f"{found[0]}, and are {now} now; put them back, or choose another store (a model that "
            "begins with random weights needs a seed)"
        )
