"""Jobs as tasks of a cluster; here submitit's local one, whose tasks are processes."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec

import pytest

from acclimate.bench import Result, Store
from acclimate.bench.engines import InlineEngine, WorkerSettings
from acclimate.bench.engines.slurm import SlurmEngine, run_share
from acclimate.bench.sweep import run_jobs
from acclimate.errors import AcclimateError
from sweeps import a_job, write_digits

pytestmark = pytest.mark.skipif(
    find_spec("submitit") is None, reason="needs pip install 'acclimate[slurm]'"
)


@pytest.fixture
def settings(tmp_path):
    return WorkerSettings(roots=write_digits(tmp_path, 64), device="cpu", incomplete=True)


def engine_for(settings, folder, **changes):
    return SlurmEngine(settings, **{"folder": folder, "cluster": "local", "poll": 0.1, **changes})


def test_what_a_killed_task_left_is_run_by_another(settings, tmp_path, monkeypatch):
    # Ends its process, the first time it is built.
    (tmp_path / "mortal_net.py").write_text(
        "import os, pathlib\n"
        "from acclimate.models import load\n"
        "def build():\n"
        f"    mark = pathlib.Path({str(tmp_path / 'died')!r})\n"
        "    if not mark.exists():\n"
        "        mark.touch()\n"
        "        os._exit(9)\n"
        "    return load('acclimate:digits').model\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    shift = "cifar/fog:2"
    jobs = [a_job("bn", shift=shift), a_job("none", shift=shift, model="py:mortal_net:build")]
    jobs += [a_job(shift=shift, seed=seed) for seed in range(2)]
    store = Store(tmp_path / "sweep.db")
    outcome = run_jobs(jobs, store, engine_for(settings, tmp_path / "tasks"), progress=False)
    assert (outcome.done, outcome.failed) == (4, ())
    assert (tmp_path / "died").exists()
    there = {result.key: result.error for result in store.results()}
    alone = []
    InlineEngine(settings).run(jobs[:1], alone.append)
    assert [there[result.key] for result in alone] == [result.error for result in alone]


def test_a_job_that_ends_its_task_is_given_up_and_the_others_go_on(settings, tmp_path, monkeypatch):
    (tmp_path / "deadly_task_net.py").write_text("import os\ndef build(): os._exit(9)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    jobs, results = [a_job("none", model="py:deadly_task_net:build"), a_job("bn")], []
    engine_for(settings, tmp_path / "tasks", retries=1).run(jobs, results.append)
    assert {(r.job, r.status) for r in results} == {(jobs[0], "failed"), (jobs[1], "done")}
    failed = next(r for r in results if r.status == "failed")
    assert "ended, 2 times; its log is" in failed.message


def test_what_tasks_finished_after_their_sweep_was_killed_is_taken(settings, tmp_path):
    jobs, left = [a_job("none"), a_job("bn"), a_job("ent")], tmp_path / "tasks" / "results-earlier"
    left.mkdir(parents=True)
    run_share(settings, [jobs[0].to_dict()], str(left))
    failed = Result.failed(jobs[1], "no luck").to_dict()
    (left / f"{jobs[1].key}.json").write_text(json.dumps(failed))
    engine, results = engine_for(settings, tmp_path / "tasks"), []
    submit, submitted = engine._submit, []
    engine._submit = lambda share, folder: submitted.extend(share) or submit(share, folder)
    engine.run(jobs, results.append)
    assert submitted == jobs[1:]  # what failed is run again
    assert {result.job: result.status for result in results} == dict.fromkeys(jobs, "done")
    run_share(settings, [jobs[0].to_dict()], str(left))
    engine.run(jobs[:1], results.append)  # nothing is left to submit
    assert (len(submitted), len(results)) == (2, 4)


def test_a_worker_that_cannot_be_made_ends_the_sweep_with_the_reason(settings, tmp_path):
    nowhere = replace(settings, device="nowhere")
    with pytest.raises(AcclimateError, match="cannot use the device 'nowhere'"):
        engine_for(nowhere, tmp_path / "tasks").run([a_job("none")], lambda result: None)


def test_mistakes(settings, tmp_path):
    with pytest.raises(AcclimateError, match="expected workers >= 1, got 0"):
        engine_for(settings, tmp_path, workers=0)
    with pytest.raises(AcclimateError, match=r"submitit refuses this: .*partitionn"):
        engine_for(settings, tmp_path, parameters={"partitionn": "gpu"})
