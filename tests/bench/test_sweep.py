"""What is missing is run, and only that."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings

import pytest

from acclimate.bench import Plan, Store
from acclimate.bench.engines import InlineEngine, WorkerSettings
from acclimate.bench.sweep import announced, run_plan
from acclimate.bench.worker import Worker
from acclimate.callbacks import CSV, Callback
from acclimate.errors import AcclimateError
from sweeps import DATASET, MODEL, write_digits


@pytest.fixture
def roots(tmp_path):
    return write_digits(tmp_path, 64)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "sweep.db")


def engine(roots, *, incomplete=True):
    return InlineEngine(WorkerSettings(roots=roots, device="cpu", incomplete=incomplete))


def plan(**changes):
    values = {"models": [MODEL], "datasets": [DATASET], "recipes": ["none", "bn"]}
    return Plan(**{**values, "shifts": ["cifar/fog:2"], **changes})


def test_twice_is_once(roots, store, capfd):
    first = run_plan(plan(), store, engine(roots))
    assert (first.done, first.skipped, first.failed) == (2, 0, ())
    assert "2/2" in capfd.readouterr().err
    again = run_plan(plan(), store, engine(roots), progress=False)
    assert (again.done, again.skipped) == (0, 2)
    more = run_plan(plan(shifts=["cifar/fog:2", "clean"]), store, engine(roots), progress=False)
    assert (more.done, more.skipped) == (2, 2)
    assert len(store) == 4


def test_callbacks_are_called_as_each_job_ends(roots, store, tmp_path):
    seen = []

    class Seen(Callback):
        def on_job_end(self, job):
            seen.append(job)

    log = tmp_path / "jobs.csv"
    run_plan(plan(), store, engine(roots), progress=False, callbacks=[Seen(), CSV(log)])
    assert [job.number for job in seen] == [1, 2]
    assert {job.recipe for job in seen} == {"none", "bn"}
    stored = {result.job.recipe: result.error for result in store.results()}
    assert {job.recipe: job.error for job in seen} == stored
    assert all(job.reason is None and job.seconds > 0 for job in seen)
    assert f"job/bn/error,{stored['bn']:.9g}" in log.read_text()
    run_plan(plan(), store, engine(roots), progress=False, callbacks=Seen())
    assert len(seen) == 2  # nothing was missing
    bad = engine(roots, incomplete=False)
    run_plan(plan(seeds=[1]), store, bad, progress=False, callbacks=[Seen(), CSV(log)])
    assert "expected 10,000 images" in seen[-1].reason
    assert "cifar/fog:2 failed: " in log.read_text()


def test_what_failed_is_run_again(roots, store):
    failed = run_plan(plan(), store, engine(roots, incomplete=False), progress=False)
    assert failed.done == 0
    assert all("expected 10,000 images" in result.message for result in failed.failed)
    assert len(store.failed()) == 2
    mended = run_plan(plan(), store, engine(roots), progress=False)
    assert (mended.done, mended.skipped, mended.failed) == (2, 0, ())
    assert not store.failed()


def test_other_images_by_the_same_name_are_not_mixed(roots, store, tmp_path):
    run_plan(plan(recipes=["none"]), store, engine(roots), progress=False)
    other = tmp_path / "other"
    other.mkdir()
    outcome = run_plan(plan(), store, engine(write_digits(other, 32)), progress=False)
    assert len(outcome.failed) == 1
    assert "results from other data" in outcome.failed[0].message


@pytest.mark.parametrize("times", [1, 2])
def test_a_store_that_is_held_by_another_for_long_fails_no_job(roots, store, monkeypatch, times):
    whole, tries = Store.add, []

    def held(self, result):
        tries.append(result)
        if len(tries) <= times:
            raise AcclimateError("cannot use the store: another process has held it")
        return whole(self, result)

    monkeypatch.setattr(Store, "add", held)
    if times == 1:
        assert not run_plan(plan(), store, engine(roots), progress=False).failed
    else:
        with pytest.raises(AcclimateError, match="another process has held it"):
            run_plan(plan(), store, engine(roots), progress=False)
        assert len(store) == 0  # to be run again, and not kept as failed


def test_a_data_set_without_a_root_is_refused_before_anything_runs(store):
    with pytest.raises(AcclimateError, match="mnist needs a root"):
        run_plan(plan(), store, engine({}), progress=False)
    assert len(store) == 0


def test_a_store_that_cannot_be_written_to_is_told_before_anything_runs(roots, store, monkeypatch):
    def refused(path):
        raise AcclimateError(f"cannot write to {path}")

    monkeypatch.setattr("acclimate.bench.store._all_or_nothing", refused)
    monkeypatch.setattr(Worker, "run", lambda worker, job: pytest.fail("a job was run"))
    with pytest.raises(AcclimateError, match="cannot write to"):
        run_plan(plan(), store, engine(roots), progress=False)


def test_smaller_batches_are_counted(roots, store, monkeypatch):
    real = Worker._attempt

    def attempt(self, job, loaded, opened, size):
        if size is None:
            raise MemoryError
        return real(self, job, loaded, opened, size)

    monkeypatch.setattr(Worker, "_attempt", attempt)
    outcome = run_plan(plan(), store, engine(roots), progress=False)
    assert (outcome.failed, outcome.smaller) == ((), outcome.done)
    assert outcome.done > 0


HOLD = """
import sys, time
from pathlib import Path
from acclimate.bench.sweep import announced
with announced(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_sweep_is_told_of_the_first_until_that_is_gone(roots, store):
    command = [sys.executable, "-c", HOLD, str(store.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout.readline() == "held\n"
            told = rf"another sweep \(process {first.pid}\) .* run twice, and kept"
            with pytest.warns(match=told):
                outcome = run_plan(plan(), store, engine(roots), progress=False)
            assert outcome.done == 2
        finally:
            first.kill()
    for shift in ("clean", "cifar/snow:1"):  # after one that was killed, and one that ended
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run_plan(plan(shifts=[shift]), store, engine(roots), progress=False)


def test_no_sweep_fails_for_a_mark_it_cannot_have(roots, store):
    store.path.with_name("sweep.db-sweep").mkdir()
    assert run_plan(plan(), store, engine(roots), progress=False).done == 2


def test_an_error_of_a_sweep_is_its_own(store):
    with pytest.raises(KeyError) as caught, announced(store.path), announced(store.path):
        raise KeyError
    assert caught.value.__context__ is None


def test_a_folder_that_goes_while_its_mark_is_held_is_no_error(tmp_path):
    store = tmp_path / "sweeps" / "sweep.db"
    store.parent.mkdir()
    with announced(store) as other:
        shutil.rmtree(store.parent)
    assert other is None
