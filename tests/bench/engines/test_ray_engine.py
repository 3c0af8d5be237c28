"""Jobs on a Ray cluster that loses a node."""

from __future__ import annotations

import importlib
import time
from importlib.util import find_spec

import pytest

from acclimate.bench import Store
from acclimate.bench.engines import InlineEngine, WorkerSettings
from acclimate.bench.engines.ray_engine import RayEngine
from acclimate.bench.sweep import run_jobs
from acclimate.errors import AcclimateError
from sweeps import a_job, check_unlucky_nets, write_digits, write_unlucky_nets

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs pip install 'acclimate[ray]'"
)


DEADLY = """
import os
from acclimate.bench.engines import WorkerSettings
class Dies(WorkerSettings):
    def worker(self): os._exit(9)
class Raises(WorkerSettings):
    def worker(self): raise RuntimeError("the driver is too old")
"""

WAITING = """
import time
from pathlib import Path
from acclimate.models import load
def build():
    while not Path(__file__).with_name("go").exists(): time.sleep(0.05)
    return load("acclimate:digits")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head and two nodes, which take seconds to start; nodes find nets that end their process."""
    import ray
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("nets")
    (folder / "deadly_ray_net.py").write_text("import os\ndef build(): os._exit(9)\n")
    (folder / "deadly_settings.py").write_text(DEADLY)
    (folder / "waiting_net.py").write_text(WAITING)
    write_unlucky_nets(folder)
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(folder), prepend=":")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    made.nets = folder
    made.nodes = [made.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()
    patch.undo()


@pytest.fixture
def settings(tmp_path):
    return WorkerSettings(roots=write_digits(tmp_path, 64), device="cpu", incomplete=True)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_an_address_where_nobody_answers_is_said_at_once(settings, monkeypatch, address):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    began = time.monotonic()
    with pytest.raises(AcclimateError, match=f"no Ray cluster at '{address}': .*; start one"):
        RayEngine(settings, address=address)
    assert time.monotonic() - began < 20  # Ray itself tries for minutes


def test_mistakes_are_said_before_anything_runs(cluster, settings):
    with pytest.raises(AcclimateError, match="no node has room for a job with 64 CPUs"):
        RayEngine(settings, cpus_per_job=64)
    with pytest.raises(AcclimateError, match="expected workers >= 1, got 0"):
        RayEngine(settings, workers=0)
    with pytest.raises(AcclimateError, match="expected cpus_per_job > 0"):
        RayEngine(settings, cpus_per_job=0)
    bad = WorkerSettings(roots=settings.roots, device="nowhere")
    with pytest.raises(AcclimateError, match="cannot use the device 'nowhere'"):
        RayEngine(bad, gpus_per_job=0).run([a_job("none")], lambda result: None)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Dies", "3 Ray workers in a row were lost before they could begin"),
        ("Raises", "a Ray worker cannot begin: RuntimeError: the driver is too old"),
    ],
)
def test_workers_that_cannot_begin_end_the_sweep(cluster, settings, monkeypatch, kind, said):
    monkeypatch.syspath_prepend(str(cluster.nets))
    made = getattr(importlib.import_module("deadly_settings"), kind)
    bad = made(roots=settings.roots, device="cpu")
    with pytest.raises(AcclimateError, match=said):
        RayEngine(bad).run([a_job("none")], lambda result: None)  # room for two, work for one


def test_a_job_that_ends_its_worker_is_given_up(cluster, settings):
    jobs, results = [a_job("none", model="py:deadly_ray_net:build"), a_job("bn")], []
    RayEngine(settings, workers=1, retries=1).run(jobs, results.append)
    assert {(r.job, r.status) for r in results} == {(jobs[0], "failed"), (jobs[1], "done")}
    failed = next(r for r in results if r.status == "failed")
    assert "was lost, 2 times" in failed.message


def test_a_device_that_breaks_costs_a_worker_and_no_result(cluster, settings):
    check_unlucky_nets(RayEngine(settings, workers=1, retries=1), cluster.nets)


def test_every_job_is_in_the_store_once_though_a_node_is_killed(
    cluster, settings, tmp_path, monkeypatch
):
    jobs = [
        a_job(model="py:waiting_net:build", shift=shift, seed=seed)
        for shift in ("cifar/fog:2", None)
        for seed in range(3)
    ]
    store, engine = Store(tmp_path / "sweep.db"), RayEngine(settings)
    assert engine.workers == 2
    kept, answer, take = store.add, engine._answer, engine._lost
    added, lost = [], []

    def answer_and_kill(hands, *more):
        answer(hands, *more)
        both_busy = sum(hand.job is not None for hand in hands.values()) == 2
        if both_busy and len(cluster.nodes) == 2:  # no job can end before the node is gone
            cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
            (cluster.nets / "go").touch()

    store.add = lambda result: (added.append(result.key), kept(result))[1]
    engine._answer = answer_and_kill
    engine._lost = lambda hand, *more: (lost.append(hand.job), take(hand, *more))
    outcome = run_jobs(jobs, store, engine, progress=False)
    assert len(cluster.nodes) == 1
    assert lost[0] in jobs  # the node was at one
    assert (outcome.done, outcome.failed) == (6, ())
    assert sorted(added) == sorted(job.key for job in jobs)
    there = {result.key: result.error for result in store.results()}
    alone = []
    monkeypatch.syspath_prepend(cluster.nets)
    InlineEngine(settings).run(jobs[:1], alone.append)
    assert [there[result.key] for result in alone] == [result.error for result in alone]
