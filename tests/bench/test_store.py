"""The store: whole results, by many processes at once, through kills."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from acclimate.bench import Added, Result, Store, conditions
from acclimate.bench.store import COLUMNS
from acclimate.errors import AcclimateError, AcclimateWarning
from stored import job, result

TESTS = Path(__file__).parents[1]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.db")


def test_what_is_added_is_read_back_whole(store):
    added = result(options={"optimizer.lr": 1e-3}, record={"recipe": {"name": "ent"}})
    assert store.add(added)
    assert store.get(added.key) == added
    assert Store(store.path).get(added.key) == added
    assert store.get("0" * 16) is None
    assert len(store) == 1


def test_a_done_result_is_never_replaced_and_a_failed_one_is(store):
    failed = Result.failed(job(), "out of memory")
    assert store.add(failed)
    assert store.has([failed.key]) == set()
    assert store.failed() == {failed.key: "out of memory"}
    assert store.add(Result.failed(job(), "again"))
    assert store.add(result(error=20.0))
    assert not store.add(result(error=30.0))
    assert not store.add(failed)
    assert store.get(job().key).error == 20.0
    assert store.done_keys() == {job().key}
    assert store.failed() == {}


def test_which_of_many_jobs_are_done(store):
    store.add_all(result(seed=seed) for seed in range(0, 3000, 2))
    keys = [job(seed=seed).key for seed in range(3000)]
    assert store.has(keys) == set(keys[::2]) == store.done_keys()


def test_all_or_none(store):
    with pytest.raises(AcclimateError, match="other data"):
        store.add_all([result(), result(seed=1), result(seed=2, data="other")])
    assert len(store) == 0


def test_results_of_other_weights_under_the_same_name_are_refused(store):
    store.add(result(record={"weights": "9e7f94f7"}))
    assert store.add(result(recipe="rpl", record={"weights": "9e7f94f7"}))
    with pytest.raises(
        AcclimateError, match=r"other weights of .*: they were 9e7f94f7, and are 56"
    ):
        store.add(result(recipe="hard", record={"weights": "5648b49b"}))
    assert store.add(result(recipe="hard"))  # not known: kept before weights were recorded
    assert store.add(result(model="acclimate:digits", record={"weights": "5648b49b"}))


def test_results_from_other_data_are_refused(store):
    store.add(result())
    with pytest.raises(AcclimateError, match=r"from other data: .* cifar/fog:3 of cifar10"):
        store.add(result(recipe="rpl", data="other"))
    # Other images by what was asked for: another shift, count, or size of the pictures.
    assert store.add(result(shift="cifar/fog:4", data="other"))
    assert store.add(result(images=50, data="other"))
    assert store.add(result(seed=9, data="other", record={"preprocessing": "224 px"}))
    assert store.add(result(seed=8, record={"data": None}))
    # A stream joins its pictures, which gives them another digest.
    assert store.add(result(setting="online", data="joined"))


def test_conditions_choose(store):
    store.add_all(
        result(recipe=recipe, shift=f"cifar/fog:{severity}", options={"optimizer.lr": lr})
        for recipe in ("ent", "rpl", "rpl-epoch")
        for severity in (1, 5)
        for lr in (0.001, 1)
    )
    store.add(result(recipe="none", shift=None))

    def count(*words):
        return len(store.select(["key"], conditions(words)))

    assert count() == 13
    assert count("recipe=rpl*") == 8
    assert count("recipe=rpl") == 4
    assert count("recipe=ent,none") == 5
    assert count("severity=5", "recipe=rpl*") == 4
    assert count("severity=none") == 1
    assert count("options.optimizer.lr=1e-3") == 6
    assert count("options.optimizer.lr=1.0", "severity=1,5") == 6
    assert count("group=test") == 12
    assert count("model=*wrn*") == 13
    assert store.select(["options.optimizer.lr"], conditions(["recipe=none"])).rows == [(None,)]
    with pytest.raises(AcclimateError, match="unknown column 'modl'; did you mean 'model'"):
        conditions(["modl=a"])
    with pytest.raises(AcclimateError, match="expected column=value"):
        conditions(["model"])
    with pytest.raises(AcclimateError, match="expected the name of an option"):
        conditions(["options.a') OR 1=1--=1"])


def test_stores_merge(store, tmp_path):
    other = Store(tmp_path / "other.db")
    store.add_all([result(), Result.failed(job(seed=1), "no")])
    other.add_all([result(error=99.0), result(seed=1), result(seed=2)])
    assert store.merge(other.path) == Added(new=1, replaced=1, kept=1)
    assert store.get(job().key).error == 20.0
    with pytest.raises(AcclimateError, match="itself"):
        store.merge(store.path)


def _add_many(path, first):
    store = Store(path)
    for seed in range(first, first + 100):
        store.add(result(seed=seed))


@pytest.mark.parametrize(
    ("start", "firsts", "kept"),
    [
        ("spawn", [0, 100, 200, 300], 400),  # which also make the store
        ("fork", [0, 0], 100),  # two sweeps with the same jobs, of a store used before the fork
    ],
)
def test_processes_add_at_once_and_keep_each_result_once(tmp_path, start, firsts, kept):
    path, context = tmp_path / "results.db", multiprocessing.get_context(start)
    if start == "fork":
        Store(path).add(result(seed=5))
    writers = [context.Process(target=_add_many, args=(path, first)) for first in firsts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert {writer.exitcode for writer in writers} == {0}
    assert len(Store(path)) == kept


ENDLESS = """
import itertools, sys
from acclimate.bench import Store
from stored import result
store = Store(sys.argv[1])
for n in itertools.count():
    store.add_all(result(seed=10 * n + k, record={"notes": ["x" * 20000]}) for k in range(10))
    print(n, flush=True)
"""


def test_a_killed_writer_leaves_nothing_half_written(tmp_path):
    path = tmp_path / "results.db"
    for _ in range(2):  # the second goes on in what the first left
        known = len(Store(path).done_keys())
        command = [sys.executable, "-c", ENDLESS, str(path)]
        writer = subprocess.Popen(command, cwd=TESTS / "support", stdout=subprocess.PIPE, text=True)
        for _ in range(8):
            said = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        said = max([said, *map(int, writer.stdout.read().split())])
        store = Store(path)
        found = store.results(conditions(["recipe=ent"]))
        assert len(found) % 10 == 0  # each ten were one transaction
        assert len(found) >= max(known - 1, 10 * (said + 1))  # what was promised is there
        for whole in found:
            assert whole.record.notes == ("x" * 20000,)
            assert store.get(whole.key) == whole
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert store.add(result(recipe="rpl", seed=known))


def test_a_reader_does_not_wait_for_a_writer(store):
    store.add(result())
    writing = sqlite3.connect(store.path, isolation_level=None)
    writing.execute("BEGIN IMMEDIATE")
    started = time.perf_counter()
    assert len(store) == 1
    assert time.perf_counter() - started < 5
    writing.execute("ROLLBACK")
    writing.close()


@pytest.fixture
def older(store):
    """A store from before imagenet-d had the released map, with a result of it."""
    clipart = result(
        dataset="imagenet-d", shift="clipart", options={"optimizer.lr": 7.5e-4}, error=60.0
    )
    store.add_all([clipart, result()])
    with sqlite3.connect(store.path) as connection:
        connection.execute("ALTER TABLE results DROP COLUMN sha256")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    return store.path


def test_older_results_of_imagenet_d_are_of_the_curated_map(older):
    store = Store(older)
    old = job(dataset="imagenet-d", shift="clipart", options={"optimizer.lr": 7.5e-4})
    renamed = replace(old, dataset="imagenet-d-curated")
    assert store.done_keys() == {renamed.key, job().key}
    assert store.get(renamed.key).job == renamed
    assert store.get(renamed.key).error == 60.0
    assert store.select(["dataset"], conditions(["shift=clipart"])).rows == [(renamed.dataset,)]
    # The same job is run anew, of other images, and both are kept.
    assert store.add(Result(job=old, record={"errors": {"final": 70.0}, "data": "d1"}))
    assert store.get(old.key).error == 70.0
    assert len(Store(older)) == 3  # and are not renamed again


def test_a_store_of_a_newer_version_is_refused_and_untouched(store):
    store.add(result())
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = store.path.read_bytes()
    for use in (lambda: Store(store.path), lambda: store.add(result(seed=1)), store.done_keys):
        with pytest.raises(AcclimateError, match=r"newer acclimate \(schema 99.*untouched"):
            use()
    assert store.path.read_bytes() == before


def test_files_that_are_no_store(tmp_path):
    (tmp_path / "text.db").write_text("results, results, results\n" * 100)
    with pytest.raises(AcclimateError, match="not an SQLite file"):
        Store(tmp_path / "text.db")
    with pytest.raises(AcclimateError, match="the folder"):
        Store(tmp_path)
    with pytest.raises(AcclimateError, match="no such folder"):
        Store(tmp_path / "gone" / "results.db")
    with pytest.raises(AcclimateError, match="no such store"):
        Store(tmp_path / "results.db", create=False)
    assert not (tmp_path / "results.db").exists()
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE birds (name)")
    connection.close()
    with pytest.raises(AcclimateError, match="a database of something else"):
        Store(tmp_path / "other.db")


def test_what_a_full_disk_or_a_kill_left_of_a_store_is_made_whole(tmp_path):
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(AcclimateError, match=r"the empty file .* again"):
        Store(empty, create=False)
    assert Store(empty).add(result())
    with sqlite3.connect(tmp_path / "open.db", isolation_level=None) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE results (name)")
        connection.executemany("INSERT INTO results VALUES (?)", [("x" * 9000,)] * 20)
        for ending in ("", "-journal"):
            content = (tmp_path / f"open.db{ending}").read_bytes()
            (tmp_path / f"killed.db{ending}").write_bytes(content)
    connection.close()
    assert (tmp_path / "killed.db").stat().st_size > 0
    assert Store(tmp_path / "killed.db").add(result())


def test_a_damaged_store_is_said_to_be(store):
    store.add_all(result(seed=seed) for seed in range(300))
    whole = store.path.read_bytes()
    store.path.write_bytes(whole[:4096] + os.urandom(len(whole) // 2))
    with pytest.raises(AcclimateError, match="cannot use the store"):
        store.results()


def test_a_store_whose_schema_is_damaged_is_said_to_be(store):
    content = store.path.read_bytes()
    store.path.write_bytes(content.replace(b"CREATE TABLE", b"CREATE TABL\x80", 1))
    with pytest.raises(AcclimateError, match=r"cannot use the store .*: it is damaged"):
        Store(store.path)


def test_the_hash_of_a_result_is_of_its_values_however_sqlite_writes_numbers(store):
    store.add(replace(result(), record=replace(result().record, seconds=0.1 + 0.2)))
    with sqlite3.connect(store.path) as connection:
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        *row, stored = connection.execute(f"SELECT {names}, sha256 FROM results").fetchone()
    connection.close()
    kinds = [kind.startswith("TEXT") for kind, _ in COLUMNS.values()]
    plain = [
        each.encode() if text and each is not None else each
        for each, text in zip(row, kinds, strict=True)
    ]
    assert hashlib.sha256(json.dumps(plain, default=repr).encode()).hexdigest() == stored


def test_an_index_that_lacks_a_result_is_noticed(store):
    store.add_all([result(), result(seed=1)])
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        sql = "UPDATE sqlite_master SET sql = sql || ' WHERE seed = 1' WHERE name = 'by_status'"
        connection.execute(sql)
    connection.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute("REINDEX by_status")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ' WHERE seed = 1', '') "
            "WHERE name = 'by_status'"
        )
    connection.close()
    with pytest.raises(AcclimateError, match=r"cannot use .*it is damaged .*index by_status"):
        store.results()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("error", 3.0),
        ("error", "three"),
        ("seed", 7),
        ("record", "{}"),
        ("record", "{"),
        ("options", '["epochs"]'),
        ("status", "failed"),
        ("key", "another"),
        ("model", b"\xff\xfe"),
        ("sha256", None),
    ],
)
def test_a_changed_result_is_refused_and_runs_anew(store, column, value):
    store.add_all([result(), result(seed=1)])
    with sqlite3.connect(store.path) as connection:
        connection.execute(f'UPDATE results SET "{column}" = ? WHERE seed = 1', (value,))
    connection.close()
    for read in (
        store.results,
        store.done_keys,
        store.failed,
        lambda: store.select(["model", "error"]),
        lambda: store.get("another" if column == "key" else job(seed=1).key),
    ):
        with pytest.raises(AcclimateError, match=r"1 result in the store .* not what was written"):
            read()
    assert store.has([job().key, job(seed=1).key]) == {job().key}
    with pytest.warns(AcclimateWarning, match=r"1 result .* damaged, and was removed; .* anew"):
        store.check_writable()
    assert store.add(result(seed=1))
    assert {each.job.seed: each.error for each in store.results()} == {0: 20.0, 1: 20.0}


def test_results_of_a_store_without_hashes_get_them(older):
    store = Store(older)
    assert len(store.results()) == 2
    with sqlite3.connect(older) as connection:
        connection.execute("UPDATE results SET error = 1")
    connection.close()
    with pytest.raises(AcclimateError, match=r"2 results in the store .* are not what was written"):
        store.results()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to anything")
def test_a_store_that_cannot_be_written_to_can_be_read(store):
    store.add(result())
    store.path.chmod(0o400)
    store.path.parent.chmod(0o500)
    try:
        assert len(Store(store.path)) == 1
        with pytest.raises(AcclimateError, match="check who may"):
            store.add(result(seed=1))
    finally:
        store.path.parent.chmod(0o700)


def test_a_pivot_of_many_results_is_quick(store):
    from acclimate.bench.table import needed, pivot

    store.add_all(result(seed=s, shift=f"cifar/fog:{v}") for s in range(1000) for v in range(1, 6))
    started = time.perf_counter()
    assert pivot(store.select(needed("error")), rows=["recipe"]).cell(("ent",)).seeds == 1000
    assert time.perf_counter() - started < 5  # generous: machines that run tests are busy


def test_a_data_frame_has_a_row_for_each_result(tmp_path):
    pytest.importorskip("pandas")
    store = Store(tmp_path / "results.db")
    store.add_all([result(error=20.0), result(error=30.0, recipe="rpl"), result(seed=1)])
    frame = store.to_pandas(conditions(["seed=0"]))
    assert dict(zip(frame["recipe"], frame["error"], strict=True)) == {"ent": 20.0, "rpl": 30.0}
    assert {"severity", "corruption", "group", "options"} <= set(frame.columns)


def test_without_pandas_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(AcclimateError, match=r"pip install 'acclimate\[tables\]'"):
        Store(tmp_path / "results.db").to_pandas()
