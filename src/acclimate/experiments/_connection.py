"""A connection to a store's file, or the reason why there is none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from acclimate.errors import AcclimateError
from acclimate.experiments._schema import APPLICATION, CREATE, UPGRADES, VERSION

__all__ = ["connected", "create_store", "transaction"]

_BUSY = 60.0  # seconds to wait for another writer; one write takes milliseconds


@contextmanager
def connected(path: Path, *, write: bool) -> Iterator[sqlite3.Connection]:
    """A checked connection, closed afterwards; sqlite's errors become ours."""
    connection = None
    try:
        connection = _open(path, write=write)
        if _check(connection, path) < VERSION:
            _upgrade(path)
        yield connection
    except sqlite3.Error as error:
        raise AcclimateError(f"cannot use the store {path}: {_reason(path, error)}") from error
    finally:
        if connection is not None:
            connection.close()


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """All or nothing; other writers wait meanwhile."""
    with connected(path, write=True) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def create_store(path: Path) -> None:
    """Make a new store; a store that is there already is left as it is."""
    if not path.parent.is_dir():
        raise AcclimateError(f"no such folder: {path.parent}; make it, or choose another store")
    if path.is_dir():
        raise AcclimateError(f"expected a file for the store, got the folder {path}")
    if path.exists() and path.stat().st_size:
        return
    connection = None
    try:
        connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
        # Waits for another process that makes the same store, and then finds it made.
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA application_id").fetchone()[0] == 0:
            for statement in CREATE:
                connection.execute(statement)
        connection.execute("COMMIT")
        _let_readers_read(connection)
    except sqlite3.Error as error:
        raise AcclimateError(f"cannot make the store {path}: {_reason(path, error)}") from error
    finally:
        if connection is not None:
            connection.close()


def _open(path: Path, *, write: bool) -> sqlite3.Connection:
    if path.is_dir():
        raise AcclimateError(f"expected a store, got the folder {path}")
    if not path.exists():
        raise AcclimateError(f"no such store: {path}; check the path")
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
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _let_readers_read(connection: sqlite3.Connection) -> None:
    """Write-ahead logging: nobody has to wait for a writer. It is the file's, and set once."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # Another process may be at it just now: the next writer tries again.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")


def _upgrade(path: Path) -> None:
    """Bring a store of an older version up to this one's; all or nothing."""
    try:
        connection = _ready(f"file:{quote(str(path.absolute()))}?mode=rw", write=True)
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have been faster.
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            for number in range(version, VERSION):
                for statement in UPGRADES[number]:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise AcclimateError(
            f"the store {path} was written by an older acclimate and cannot be brought up to date "
            f"where it lies: {_reason(path, error)}; copy it to where it can be written"
        ) from error


def _check(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a store; refuses other files, and stores of a later version."""
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


def _reason(path: Path, error: sqlite3.Error) -> str:
    words = str(error)
    if "not a database" in words:
        return "it is not an SQLite file; choose another file"
    if "readonly" in words or "read-only" in words:
        return "it cannot be written to; check who may write to the file and its folder"
    if "unable to open" in words:
        return "it cannot be opened; check who may read and write the file and its folder"
    if "locked" in words:
        return f"another process has held it for {_BUSY:.0f} s"
    if "malformed" in words:
        return f"it is damaged ({words}); take a copy and export what can still be read"
    return words
