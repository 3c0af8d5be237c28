"""The store: results in one SQLite file, each whole or not there."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from acclimate import reading
from acclimate.bench.job import SEQUENCES, STATIONARY, Job
from acclimate.bench.record import Result, plain
from acclimate.data.shift import group_of
from acclimate.errors import AcclimateError, AcclimateWarning, unknown_name
from acclimate.files import Writer, csv_writer, text_writer, write_files
from acclimate.text import counted, user_path

if TYPE_CHECKING:
    import pandas

__all__ = [
    "COLUMNS",
    "Added",
    "Condition",
    "Frame",
    "RefusedResultError",
    "Store",
    "conditions",
    "export",
    "export_all",
    "is_made",
    "read_json",
    "results_in",
    "row_of",
]

VERSION = 4
"""Of the schema. A later one adds columns and says how to fill them from the records."""

APPLICATION = 0x61636331  # "acc1": tells a store from any other SQLite file


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _options(job: Job) -> dict[str, Any]:
    """With the batch size, so that tables tell results apart by it."""
    options: dict[str, Any] = job.to_dict().get("options", {})
    return options if job.batch_size is None else {**options, "batch_size": job.batch_size}


COLUMNS: dict[str, tuple[str, Callable[[Result], Any]]] = {
    "key": ("TEXT PRIMARY KEY", lambda r: r.key),
    "model": ("TEXT NOT NULL", lambda r: r.job.model),
    "weights": ("TEXT", lambda r: r.job.weights and r.job.weights.sha256[:16]),
    "dataset": ("TEXT NOT NULL", lambda r: r.job.dataset),
    "split": ("TEXT", lambda r: r.job.split),
    "shift": ("TEXT", lambda r: r.job.shift),
    "preset": ("TEXT", lambda r: r.job.preset),
    "corruption": ("TEXT", lambda r: r.corruption),
    "severity": ("INTEGER", lambda r: r.job.severity),
    "draw": ("INTEGER NOT NULL", lambda r: r.job.draw),
    "group": ("TEXT", lambda r: group_of(r.corruption)),
    "images": ("INTEGER", lambda r: r.job.images),
    "recipe": ("TEXT NOT NULL", lambda r: r.job.recipe),
    "options": ("TEXT NOT NULL", lambda r: _json(_options(r.job))),
    "seed": ("INTEGER NOT NULL", lambda r: r.job.seed),
    "status": ("TEXT NOT NULL", lambda r: r.status),
    "error": ("REAL", lambda r: r.error),
    "unadapted": ("REAL", lambda r: r.unadapted_error),
    "online": ("REAL", lambda r: r.online_error),
    "ece": ("REAL", lambda r: r.ece),
    "wrong": ("INTEGER", lambda r: r.record.wrong),
    "labelled": ("INTEGER", lambda r: r.record.labelled),
    "seconds": ("REAL", lambda r: r.record.seconds),
    "memory": ("INTEGER", lambda r: r.record.memory),
    "device": ("TEXT", lambda r: r.record.device),
    "data": ("TEXT", lambda r: r.record.data),
    "preprocessing": ("TEXT", lambda r: r.record.preprocessing),
    "created": ("TEXT NOT NULL", lambda r: r.created),
    "message": ("TEXT NOT NULL", lambda r: r.message),
    "job": ("TEXT NOT NULL", lambda r: _json(r.job.to_dict())),
    "record": ("TEXT NOT NULL", lambda r: _json(plain(r.record.to_dict()))),
    "setting": ("TEXT", lambda r: r.job.setting),
}
"""What a store keeps of a result: the kind of each column, and where its value comes from."""

_DIGEST = "sha256_of({})".format(
    ", ".join(
        f'CAST("{n}" AS BLOB)' if kind.startswith("TEXT") else f'"{n}"'
        for n, (kind, _) in COLUMNS.items()
    )
)
"""Of the values, and not of their text: how SQLite writes a number depends on its version."""
_SEALED = f"sha256 IS {_DIGEST}"
"""That a row is what was written."""

_RENAMED = {"imagenet-d": "imagenet-d-curated"}
"""Data sets before version 3 (of exports: 2), and their names since: imagenet-d has another map."""

_RENAME = (
    "UPDATE results SET dataset = '{new}', job = json_set(job, '$.dataset', '{new}'), "
    "key = job_key(json_set(job, '$.dataset', '{new}')) WHERE dataset = '{old}'"
)
UPGRADES = {
    1: ("ALTER TABLE results ADD COLUMN setting TEXT",),
    2: tuple(_RENAME.format(old=old, new=new) for old, new in _RENAMED.items()),
    3: ("ALTER TABLE results ADD COLUMN sha256 TEXT", f"UPDATE results SET sha256 = {_DIGEST}"),
}
"""What makes a store of one version one of the next; the record of version 1 knew no settings."""

# What tables are filtered by comes first in an index, so that few rows are looked at; the second
# answers the guard against other data, once for each result that is added.
CREATE = (
    "CREATE TABLE results ({}, sha256 TEXT)".format(
        ", ".join(f'"{n}" {kind}' for n, (kind, _) in COLUMNS.items())
    ),
    "CREATE INDEX by_model ON results (model, dataset, recipe, corruption, severity)",
    "CREATE INDEX by_data ON results (dataset, shift, images, data)",
    "CREATE INDEX by_status ON results (status, key)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


def row_of(result: Result) -> tuple[Any, ...]:
    """A result's values, in the order of the columns."""
    return tuple(value_of(result) for _, value_of in COLUMNS.values())


_WHOLE = "job, status, record, message, created"


def _result(job: str, status: str, record: str, message: str, created: str) -> Result:
    """A result read back from the columns of `_WHOLE`."""
    values = {"status": status, "message": message, "created": created}
    try:
        plain = {**values, "job": json.loads(job), "record": json.loads(record)}
        return Result.from_dict(plain)
    except (TypeError, ValueError, RecursionError, AcclimateError) as error:
        raise AcclimateError(
            f"a stored result is damaged ({error}): job {job!r:.80}; take a copy of the store "
            "from before, or remove that result"
        ) from error


_BUSY = 60.0  # seconds to wait for another writer; one write takes milliseconds

_ACCESS = "it cannot be written to; check who may write to the file and its folder"
_REASONS = {
    "not a database": "it is not an SQLite file; choose another file",
    "readonly": _ACCESS,
    "read-only": _ACCESS,
    "unable to open": "it cannot be opened; check who may read and write the file and its folder",
    "locked": f"another process has held it for {_BUSY:.0f} s",
    "malformed": "it is damaged ({}); take back a copy of it, or run its plan into a new one",
}
"""What SQLite's words mean for a user."""


@contextmanager
def _explained(what: str, *, advice: str = "") -> Iterator[None]:
    """Make SQLite's errors ours."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # its words may quote what is damaged
        words = str(error) if isinstance(error, sqlite3.Error) else f"malformed: {error.reason}"
        reasons = (reason.format(words) for mark, reason in _REASONS.items() if mark in words)
        raise AcclimateError(f"{what}: {next(reasons, words)}{advice}") from error


@contextmanager
def _all_or_nothing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction; other writers wait meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def _connected(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection to a store of this version, closed afterwards."""
    if path.is_dir():
        raise AcclimateError(f"expected a store, got the folder {path}")
    if not path.exists():
        raise AcclimateError(f"no such store: {path}; check the path")
    if path.stat().st_size == 0:
        raise AcclimateError(
            f"expected a store, got the empty file {path}; run the command that makes it again"
        )
    with (
        _explained(f"cannot use the store {path}"),
        closing(_open(path, write=write)) as connection,
    ):
        if _version(connection, path) < VERSION:
            _upgrade(path)
        yield connection


def _create(path: Path) -> None:
    """Make a new store; a store that is there already is left as it is."""
    if not path.parent.is_dir():
        raise AcclimateError(f"no such folder: {path.parent}; make it, or choose another store")
    if path.is_dir():
        raise AcclimateError(f"expected a file for the store, got the folder {path}")
    unfinished = path.with_name(f"{path.name}-journal").exists()  # of a kill, or of another writer
    if is_made(path) and not unfinished:
        return
    with (
        _explained(f"cannot make the store {path}"),
        closing(sqlite3.connect(path, timeout=_BUSY, isolation_level=None)) as connection,
    ):
        # Waits for another process that makes the same store, and then finds it made.
        with _all_or_nothing(connection):
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables:
                for statement in CREATE:
                    connection.execute(statement)
        if not tables:
            _let_readers_read(connection)


def is_made(path: Path) -> bool:
    """Whether there is a store, or another file; what a full disk left of one, empty, is none."""
    return path.exists() and path.stat().st_size > 0


def _upgrade(path: Path) -> None:
    """Bring a store of an older version up to this one's; all or nothing."""
    older = (
        f"the store {path} was written by an older acclimate and cannot be brought up to date "
        "where it lies"
    )
    with (
        _explained(older, advice="; copy it to where it can be written"),
        closing(_open(path, write=True)) as connection,
        _all_or_nothing(connection),
    ):
        connection.create_function("job_key", 1, lambda job: Job.from_dict(json.loads(job)).key)
        # Another process may have been faster.
        for number in range(_version(connection, path), VERSION):
            for statement in UPGRADES[number]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _open(path: Path, *, write: bool) -> sqlite3.Connection:
    where = f"file:{quote(str(path.absolute()))}"
    try:
        return _ready(f"{where}?mode={'rw' if write else 'ro'}", write=write)
    except sqlite3.OperationalError:
        # A store on a read-only disk has no place for the files that readers agree through; what
        # nobody can write to needs none, unless a writer was stopped and left some.
        log = path.with_name(f"{path.name}-wal")
        if write or (log.exists() and log.stat().st_size):
            raise
        return _ready(f"{where}?immutable=1", write=False)


def _ready(uri: str, *, write: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY, isolation_level=None)
    try:
        if write:
            # A result is on the disk before `add` returns, whatever happens to the machine.
            connection.execute("PRAGMA synchronous = FULL")
            _let_readers_read(connection)
        connection.create_function("sha256_of", len(COLUMNS), _sha256, deterministic=True)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _sha256(*row: object) -> str:
    return hashlib.sha256(json.dumps(row, default=repr).encode()).hexdigest()


def _let_readers_read(connection: sqlite3.Connection) -> None:
    """Write-ahead logging: nobody has to wait for a writer. It is the file's, and set once."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # Another process may be at it just now: the next writer tries again.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Of a store; refuses other files, and stores of a later version."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise AcclimateError(
            f"expected a store of results, got {path}, a database of something else; choose "
            "another file"
        )
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise AcclimateError(
            f"the store {path} was written by a newer acclimate (schema {version}, this one reads "
            f"up to {VERSION}); it is left untouched: update acclimate"
        )
    return version


_OPTION = "options."
_NOTHING = {
    "recipe": (),  # none is one
    "corruption": ("none", "clean"),
    "shift": ("none", "clean"),
    "setting": ("none", STATIONARY),
}
"""How tables and people say that a column has no value, where not by "none" alone."""
_SHOWN = [name for name in COLUMNS if name not in ("job", "record")]

_SEQUENCES = ", ".join(f"'{name}'" for name in sorted(SEQUENCES))
# What no column has is read from the records, which takes longer.
_IN_RECORDS = {
    "forgetting": "(json_extract(record, '$.forgetting.after')"
    " - json_extract(record, '$.forgetting.before'))",
    "forgetting_images": "json_extract(record, '$.forgetting.images')",
    "by_shift": f"CASE WHEN setting IN ({_SEQUENCES}) THEN json_extract(record, '$.by_shift') END",
}


@dataclass(frozen=True)
class Condition:
    """A column must have one of some values, in which ``*``, ``?`` and ``[…]`` are wildcards."""

    column: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        _column_sql(self.column)

    def sql(self) -> tuple[str, list[str | float]]:
        """The condition with marks, and the values for them.

        >>> Condition("recipe", ("rpl*",)).sql()
        ('("recipe" GLOB ?)', ['rpl*'])
        """
        name, parts = _column_sql(self.column), []
        filled: list[str | float] = []
        for value in self.values:
            if value.lower() in _NOTHING.get(self.column, ("none",)):
                parts.append(f"{name} IS NULL")
            elif (number := _number(value)) is None:
                parts.append(f"{name} GLOB ?")
                filled.append(value)
            else:  # a number as it is, or a word that looks like one
                parts.append(f"{name} IN (?, ?)")
                filled += [number, value]
        return f"({' OR '.join(parts)})", filled


def conditions(words: Iterable[str]) -> list[Condition]:
    """Read ``column=value`` words; several values are set apart by commas, "none" is no value.

    >>> conditions(["severity=1,5", "options.optimizer.lr=1e-3"])[0]
    Condition(column='severity', values=('1', '5'))
    """
    found = []
    for word in words:
        column, equals, value = word.partition("=")
        values = tuple(each.strip() for each in value.split(","))
        if not (column and equals and all(values)):
            raise AcclimateError(
                f"expected column=value (model=wrn*, severity=5, options.optimizer.lr=1e-3), got "
                f"{word!r}"
            )
        found.append(Condition(column.strip(), values))
    return found


def _column_sql(name: str) -> str:
    """A column as SQL has it; ``options.optimizer.lr`` is looked up in the options."""
    if name.startswith(_OPTION):
        option = name.removeprefix(_OPTION)
        if not option.replace(".", "").replace("_", "").isalnum():
            raise AcclimateError(f"expected the name of an option, got {option!r}")
        return f"json_extract(options, '$.\"{option}\"')"
    if name in _IN_RECORDS:
        return _IN_RECORDS[name]
    if name not in _SHOWN:
        raise unknown_name("column", name, [*_SHOWN, f"{_OPTION}NAME"])
    return f'"{name}"'


def _number(value: str) -> float | None:
    words = {"true": 1.0, "false": 0.0}  # as json_extract gives them
    try:
        return words[value.lower()] if value.lower() in words else float(value)
    except ValueError:
        return None


_FORMAT = "acclimate-results"
_FORMAT_VERSION = 2


def export(results: Sequence[Result], path: str | Path) -> Path:
    """Write results to a .csv, .json or .parquet file; it is whole or not there.

    JSON holds all there is, and ``Store.merge`` takes it back. CSV and Parquet have the columns
    that can be queried, and the records as JSON.

    >>> import tempfile
    >>> from acclimate.bench import Job
    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="ent")
    >>> results = [Result(job=job, record={"errors": {"final": 7.5}})]
    >>> read_json(export(results, Path(tempfile.mkdtemp()) / "all.json")) == results
    True
    """
    return export_all(results, [path])[0]


def export_all(results: Sequence[Result], paths: Sequence[str | Path]) -> list[Path]:
    """Write results to several files, as `export` does one; all or none."""
    files = [user_path(path) for path in paths]
    for file in files:
        if file.suffix.lower() not in _FORMATS:
            raise AcclimateError(f"expected a file ending in {', '.join(_FORMATS)}, got {file}")
    write_files({file: _FORMATS[file.suffix.lower()](results) for file in files})
    return files


def read_json(path: str | Path) -> list[Result]:
    """The results of a JSON file that :func:`export` wrote."""
    found = reading.read_json(user_path(path))
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise AcclimateError(f"expected results that were exported as JSON, got {path}")
    version, results = found.get("version"), found.get("results")
    if not isinstance(version, int) or not isinstance(results, list):
        raise AcclimateError(f"{path} is damaged: expected its version and a list of results")
    if version > _FORMAT_VERSION:
        raise AcclimateError(f"{path} was written by a newer acclimate; update this one")
    try:
        if version == 1:
            for job in (each["job"] for each in results):
                job["dataset"] = _RENAMED.get(job["dataset"], job["dataset"])
        return [Result.from_dict(each) for each in results]
    except (AttributeError, KeyError, TypeError) as error:
        raise AcclimateError(f"{path} is damaged: {error!r} in one of its results") from error


def _to_json(results: Sequence[Result]) -> Writer:
    listed = [result.to_dict() for result in results]
    whole = {"format": _FORMAT, "version": _FORMAT_VERSION, "results": listed}
    return text_writer(json.dumps(whole, indent=1) + "\n")


def _to_csv(results: Sequence[Result]) -> Writer:
    return csv_writer([list(COLUMNS), *map(row_of, results)])


def _to_parquet(results: Sequence[Result]) -> Writer:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise AcclimateError(
            "Parquet needs pyarrow: pip install 'acclimate[parquet]'; or export to .csv or .json"
        ) from error
    kinds = {"TEXT": arrow.string(), "INTEGER": arrow.int64(), "REAL": arrow.float64()}
    schema = arrow.schema([(name, kinds[kind.split()[0]]) for name, (kind, _) in COLUMNS.items()])
    rows = [dict(zip(COLUMNS, row_of(result), strict=True)) for result in results]
    return partial(parquet.write_table, arrow.Table.from_pylist(rows, schema=schema))


_FORMATS = {".csv": _to_csv, ".json": _to_json, ".parquet": _to_parquet}


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Some columns of some results.

    >>> frame = Frame(columns=("recipe", "error"), rows=[("ent", 7.5), ("bn", 9.0)])
    >>> frame.column("error")
    [7.5, 9.0]
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, column: str) -> int:
        """Where a column stands in a row."""
        if column not in self.columns:
            raise unknown_name("column", column, self.columns)
        return self.columns.index(column)

    def column(self, column: str) -> list[Any]:
        """All values of a column."""
        place = self.place(column)
        return [row[place] for row in self.rows]


class RefusedResultError(AcclimateError):
    """A result of other images, or of other weights, than a store has under the same words."""


@dataclass(frozen=True, kw_only=True)
class Added:
    """How many results were new, took the place of a failed one, or were there already."""

    new: int = 0
    replaced: int = 0
    kept: int = 0


_CHUNK = 500  # values in one statement; SQLite takes at least 999
_INSERT = "INSERT OR REPLACE INTO results ({}) VALUES ({})".format(
    ", ".join(f'"{name}"' for name in COLUMNS), ", ".join("?" * len(COLUMNS))
)
_SEAL = f"UPDATE results SET sha256 = {_DIGEST} WHERE key = ?"


class Store:
    """Results by the keys of their jobs.

    A done result is never replaced, a failed one is. Nothing is held between calls but the path, so
    that a store can be sent to other processes, and as many as like may add at once. The file must
    lie on a disk of the machine: SQLite's locks do not hold on a network's.

    Args:
        path: the file; a new one is made where there is none.
        create: False refuses a path where nothing is.

    >>> import tempfile
    >>> from acclimate.bench import Job
    >>> store = Store(Path(tempfile.mkdtemp()) / "results.db")
    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="ent")
    >>> store.add(Result(job=job, record={"errors": {"final": 7.5}}))
    True
    >>> store.get(job.key).error, store.has([job.key]) == {job.key}, len(store)
    (7.5, True, 1)
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = user_path(path)
        if create:
            _create(self.path)
        self._checked: _Written = ()
        with _connected(self.path):
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
        return not self.add_all([result]).kept

    def add_all(self, results: Iterable[Result]) -> Added:
        """Keep several results, all or none."""
        new = replaced = kept = 0
        with _connected(self.path, write=True) as connection, _all_or_nothing(connection):
            for result in results:
                found = connection.execute(
                    f"SELECT status = 'done' AND {_SEALED} FROM results WHERE key = ?",
                    (result.key,),
                ).fetchone()
                # A job that fails the second time says nothing about the first.
                if found is not None and found[0]:
                    kept += 1
                    continue
                _refuse_other_data(connection, result, self.path)
                _refuse_other_model(connection, result, self.path)
                connection.execute(_INSERT, row_of(result))
                connection.execute(_SEAL, (result.key,))
                new, replaced = new + (found is None), replaced + (found is not None)
        return Added(new=new, replaced=replaced, kept=kept)

    def check_writable(self) -> None:
        """Refuse a file that cannot be written to, before anything is computed.

        Results that are damaged are removed, with a warning, and so computed anew.
        """
        with _connected(self.path, write=True) as connection, _all_or_nothing(connection):
            gone = connection.execute(f"DELETE FROM results WHERE NOT ({_SEALED})").rowcount
        if gone:
            warnings.warn(
                f"{counted(gone, 'result')} in the store {self.path} had been damaged, and "
                f"{'was' if gone == 1 else 'were'} removed; what is asked for runs anew",
                AcclimateWarning,
                stacklevel=2,
            )

    def get(self, key: str) -> Result | None:
        """The result of a job, done or failed; None where there is none."""
        with _connected(self.path) as connection:
            sql = f"SELECT {_SEALED}, {_WHOLE} FROM results WHERE key = ?"
            found = connection.execute(sql, (key,)).fetchone()
        if found is not None and not found[0]:
            raise _damaged(1, self.path)
        return _result(*found[1:]) if found else None

    def has(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have a done result."""
        rest, found = iter(dict.fromkeys(keys)), set()
        with _connected(self.path) as connection:
            while chunk := list(islice(rest, _CHUNK)):
                marks = ", ".join("?" * len(chunk))
                sql = (
                    f"SELECT key FROM results WHERE key IN ({marks}) AND status = 'done' "
                    f"AND {_SEALED}"
                )
                found |= {row[0] for row in connection.execute(sql, chunk)}
        return found

    def done_keys(self) -> set[str]:
        """The keys of all done results."""
        return {row[0] for row in self._fetch("SELECT key FROM results WHERE status = 'done'")}

    def failed(self) -> dict[str, str]:
        """Why, for each key whose result is a failed one."""
        return dict(self._fetch("SELECT key, message FROM results WHERE status = 'failed'"))

    def results(self, conditions: Sequence[Condition] = ()) -> list[Result]:
        """Whole results, oldest first."""
        rows = self._fetch(f"SELECT {_WHOLE} FROM results", (), conditions, "ORDER BY created, key")
        return [_result(*row) for row in rows]

    def select(self, columns: Sequence[str], conditions: Sequence[Condition] = ()) -> Frame:
        """Some columns of the results, for `pivot` and the like.

        ``options.optimizer.lr`` is a column too.
        """
        names = ", ".join(map(_column_sql, columns))
        rows = self._fetch(f"SELECT {names} FROM results", (), conditions)
        return Frame(columns=tuple(columns), rows=rows)

    def to_pandas(self, conditions: Sequence[Condition] = ()) -> pandas.DataFrame:
        """The results as a data frame: a row each, the columns of `COLUMNS` but job and record.

        Options and record are unfolded with ``pandas.json_normalize`` of `results` where needed.
        """
        try:
            import pandas
        except ImportError as error:
            raise AcclimateError(
                "a data frame needs pandas: pip install 'acclimate[tables]'; or export to .csv "
                "(acclimate results STORE --export all.csv)"
            ) from error
        frame = self.select(_SHOWN, conditions)
        return pandas.DataFrame.from_records(frame.rows, columns=list(frame.columns))

    def merge(self, other: str | Path) -> Added:
        """Add the results of another store, or of a JSON file that was exported; all or none."""
        path = user_path(other)
        if path.resolve() == self.path.resolve():
            raise AcclimateError(f"expected another store to merge, got {path} itself")
        return self.add_all(results_in(path))

    def _fetch(
        self,
        sql: str,
        values: Sequence[Any] = (),
        conditions: Sequence[Condition] = (),
        order: str = "",
    ) -> list[tuple[Any, ...]]:
        clauses = [condition.sql() for condition in conditions]
        where = "WHERE " + " AND ".join(sql for sql, _ in clauses) if clauses else ""
        filled = [*values, *(value for _, each in clauses for value in each)]
        written = _last_written(self.path)
        with _connected(self.path) as connection:
            if not written or written != self._checked:
                _refuse_damaged(connection, self.path)
                self._checked = written
            return connection.execute(f"{sql} {where} {order}", filled).fetchall()


_Written: TypeAlias = tuple[tuple[int, int], ...]


def _last_written(path: Path) -> _Written:
    """When a store and its log were written, and how large they are; empty where unknown."""
    files = (path, path.with_name(f"{path.name}-wal"))
    try:
        found = [each.stat() for each in files if each.exists()]
    except OSError:
        return ()
    return tuple((each.st_mtime_ns, each.st_size) for each in found)


def _refuse_damaged(connection: sqlite3.Connection, path: Path) -> None:
    """Every result must be what was written: a changed one may count anywhere, or nowhere."""
    words = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if words != "ok":  # an index may lack what the table has
        raise sqlite3.DatabaseError(f"malformed: {' '.join(words.split())}")
    sql = f"SELECT count(*) FROM results WHERE NOT ({_SEALED})"
    if damaged := connection.execute(sql).fetchone()[0]:
        raise _damaged(damaged, path)


def _damaged(results: int, path: Path) -> AcclimateError:
    return AcclimateError(
        f"{counted(results, 'result')} in the store {path} {'is' if results == 1 else 'are'} not "
        "what was written, by the sha256 beside each: the file was damaged or edited. Take back a "
        "copy, or run the same plan into it again, which computes them anew"
    )


def results_in(path: str | Path) -> list[Result]:
    """The results of a store, or of a JSON file that was exported."""
    path = user_path(path)
    if path.suffix.lower() == ".json":
        return read_json(path)
    if path.suffix.lower() in (".csv", ".parquet"):
        raise AcclimateError(
            f"expected a store, or a .json that was exported of one, got {path}: what becomes a "
            "table of that kind is not whole"
        )
    return Store(path, create=False).results()


_OTHER_DATA = (
    "SELECT data, model FROM results WHERE dataset = ? AND shift IS ? AND images IS ? "
    "AND split IS ? AND preprocessing IS ? AND setting IS ? AND data"
)
_OTHER_MODEL = (
    "SELECT json_extract(record, '$.weights') AS found FROM results WHERE model = ? "
    "AND weights IS ? AND found {} LIMIT 1"
)


def _refuse_other_data(connection: sqlite3.Connection, result: Result, path: Path) -> None:
    """The same words must mean the same images everywhere in a store."""
    job, data = result.job, result.record.data
    if data is None:
        return
    preprocessing = result.record.preprocessing
    # A stream's images are joined, and have another digest than the shift's alone.
    same = (job.dataset, job.shift, job.images, job.split, preprocessing, job.setting, data)
    # Below and above apart, since SQLite looks up a range in an index, but not what is not equal.
    sql = f"{_OTHER_DATA} < ? UNION ALL {_OTHER_DATA} > ? LIMIT 1"
    found = connection.execute(sql, same * 2).fetchone()
    if found is not None:
        what = job.dataset if job.shift is None else f"{job.shift} of {job.dataset}"
        raise RefusedResultError(
            f"the store {path} has results from other data: the images or labels of {what} were "
            f"{found[0]} for {found[1]}, and are {data} now; mend the data, or choose another store"
        )


def _refuse_other_model(connection: sqlite3.Connection, result: Result, path: Path) -> None:
    """The same name must mean the same weights: what py:net:build returns may change."""
    model, now = result.job.model, result.record.weights
    if now is None:
        return
    of = (model, COLUMNS["weights"][1](result))
    if connection.execute(_OTHER_MODEL.format("= ?"), (*of, now)).fetchone() is not None:
        return
    found = connection.execute(_OTHER_MODEL.format("IS NOT NULL"), of).fetchone()
    if found is not None:
        raise RefusedResultError(
            f"the store {path} has results from other weights of {model}: they were "
            f"{found[0]}, and are {now} now; put them back, or choose another store (a model that "
            "begins with random weights needs a seed)"
        )
