"""Jobs in processes that die, and in those that do not."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from acclimate.bench import Store
from acclimate.bench.engines import InlineEngine, ProcessEngine, WorkerSettings
from acclimate.bench.engines.base import Handout
from acclimate.bench.sweep import run_jobs
from acclimate.errors import AcclimateError
from sweeps import a_job, check_unlucky_nets, write_digits, write_unlucky_nets


@pytest.fixture
def settings(tmp_path):
    return WorkerSettings(roots=write_digits(tmp_path), device="cpu", incomplete=True)


def test_a_killed_worker_loses_nothing(settings, tmp_path):
    jobs = [a_job(shift=shift, seed=seed) for shift in ("cifar/fog:2", None) for seed in range(3)]
    store, engine = Store(tmp_path / "sweep.db"), ProcessEngine(settings, workers=2)
    killed = []
    keep = store.add

    def add_and_kill(result):
        kept = keep(result)
        if len(killed) < 1 and len(store) == 2:
            # The one that finished this has been sent its next job already.
            victim = next(iter(multiprocessing.active_children()))
            os.kill(victim.pid, signal.SIGKILL)
            killed.append(victim.pid)
        return kept

    store.add = add_and_kill
    outcome = run_jobs(jobs, store, engine, progress=False)
    assert killed
    assert (outcome.done, outcome.failed) == (6, ())
    assert len(store) == 6
    assert store.has(job.key for job in jobs) == {job.key for job in jobs}
    assert not multiprocessing.active_children()
    there = {result.key: result.error for result in store.results()}
    alone = []
    InlineEngine(settings).run(jobs[:1], alone.append)
    assert [there[result.key] for result in alone] == [result.error for result in alone]


def test_a_job_that_kills_its_worker_is_given_up(settings, tmp_path, monkeypatch):
    (tmp_path / "deadly_net.py").write_text(
        "import os, signal\ndef build(): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    job, results = a_job("none", model="py:deadly_net:build"), []
    ProcessEngine(settings, workers=1, retries=1).run([job], results.append)
    assert [(result.job, result.status) for result in results] == [(job, "failed")]
    assert "SIGKILL" in results[0].message
    assert "2 times" in results[0].message


def test_a_worker_that_is_killed_for_its_memory_is_followed_by_one_with_smaller_batches(
    settings, tmp_path, monkeypatch
):
    (tmp_path / "greedy_net.py").write_text(
        "import os, signal\n"
        "from acclimate.models import load\n"
        "def end(net, inputs):\n"
        "    if len(inputs[0]) > 64: os.kill(os.getpid(), signal.SIGKILL)\n"
        "def build():\n"
        "    net = load('acclimate:digits').model\n"
        "    net.register_forward_pre_hook(end)\n"
        "    return net\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    results = []
    ProcessEngine(settings, workers=1).run([a_job(model="py:greedy_net:build")], results.append)
    (result,) = results
    assert (result.status, result.record.batch_size) == ("done", 64)
    assert any(
        note.startswith("out of memory by all signs, its process was killed, with batches of 128, ")
        for note in result.record.notes
    )


def test_a_device_that_breaks_costs_a_worker_and_no_result(settings, tmp_path, monkeypatch):
    write_unlucky_nets(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    check_unlucky_nets(ProcessEngine(settings, workers=1, retries=1), tmp_path)


def test_an_exception_of_the_caller_leaves_no_process(settings):
    def refuse(result):
        raise AcclimateError("the disk is full")

    with pytest.raises(AcclimateError, match="disk is full"):
        ProcessEngine(settings, workers=1).run([a_job("none"), a_job("bn")], refuse)
    assert not multiprocessing.active_children()


def test_a_worker_that_cannot_be_made_says_why(settings):
    bad = WorkerSettings(roots=settings.roots, device="nowhere")
    with pytest.raises(AcclimateError, match="cannot use the device 'nowhere'"):
        ProcessEngine(bad, workers=1).run([a_job("none")], lambda result: None)


def test_numbers_that_make_no_sense(settings):
    with pytest.raises(AcclimateError, match="expected workers >= 1, got 0"):
        ProcessEngine(settings, workers=0)
    with pytest.raises(AcclimateError, match="expected retries >= 0, got -1"):
        ProcessEngine(settings, retries=-1)


def test_groups_stay_with_a_worker_and_are_shared_at_the_end():
    jobs = [a_job(shift=f"cifar/fog:{level}", seed=seed) for level in (1, 2) for seed in range(4)]
    handout = Handout(jobs)
    assert [handout.next(0) for _ in range(2)] == jobs[:2]
    assert [handout.next(1) for _ in range(4)] == jobs[4:]
    assert handout.next(1) == jobs[3]  # half of what waits for the other
    assert handout.next(0) == jobs[2]
    assert handout.next(0) is handout.next(1) is None


def test_what_a_dead_worker_had_goes_to_others():
    jobs = [a_job(seed=seed) for seed in range(3)]
    handout = Handout(jobs, retries=1)
    lost = handout.next(0)
    handout.give_back(0)
    assert handout.again(lost) is None
    assert [handout.next(1) for _ in range(3)] == jobs
    assert handout.again(lost) == "2 times"
    assert len(handout) == 0
