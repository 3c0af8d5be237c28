"""`acclimate serve --replicas` on a real Ray cluster whose processes are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from acclimate.cli import main
from serving import INPUT, QUICK, Process, settings, wait_for

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("ray", "grpc", "fastapi"))), reason="needs '.[ray,serve]'"
)

RETRIES = 40


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class Cluster(Process):
    """The command, and the processes that Ray started for it."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.mark = mark.encode()
        super().__init__("--replicas", "2", "--state", str(folder), "--port", str(free_port()))

    def processes(self, name: str) -> set[int]:
        found = set()
        for path in Path("/proc").iterdir():
            try:
                if (
                    path.name.isdecimal()
                    and f":{name}".encode() in (path / "cmdline").read_bytes()
                    and self.mark in (path / "environ").read_bytes()
                ):
                    found.add(int(path.name))
            except OSError:
                continue
        return found

    def kill_one(self, name: str) -> None:
        os.kill(min(self.processes(name)), signal.SIGKILL)

    @property
    def versions(self) -> list[int]:
        return list(self.get("health")["replicas"].values())

    def agrees(self) -> bool:
        found = self.versions
        return len(found) == 2 and len(set(found)) == 1


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    mark = uuid.uuid4().hex
    monkeypatch.setenv("ACCLIMATE_TEST_MARK", mark)
    made = Cluster(tmp_path / "state", mark)
    yield made
    made.process.kill()
    made.process.communicate()


def test_killed_processes_cost_no_request_that_a_retry_does_not_mend(cluster: Cluster) -> None:
    ended, answers, retried = threading.Event(), Counter[int](), Counter[int]()

    def client() -> None:
        while not ended.is_set():
            for _ in range(RETRIES):
                try:
                    status = cluster.predict(*range(32))[0]
                except (OSError, HTTPException):
                    status = 0
                if status == 200:
                    break
                retried[status] += 1
                time.sleep(0.25)
            answers[status] += 1
            ended.wait(0.05)  # two cores have to start processes besides

    clients = [threading.Thread(target=client) for _ in range(2)]
    for each in clients:
        each.start()
    try:
        wait_for(lambda: min(cluster.versions, default=0) >= 2)
        gone = set(cluster.get("health")["replicas"])
        cluster.kill_one("Predictor")
        wait_for(lambda: set(cluster.get("health")["replicas"]) - gone and cluster.agrees())

        before = max(cluster.versions)
        learner = cluster.processes("Learner")
        cluster.kill_one("Learner")
        wait_for(lambda: cluster.processes("Learner") - learner)
        wait_for(lambda: min(cluster.versions, default=0) > before)  # it learns on from there
    finally:
        ended.set()
        for each in clients:
            each.join()
    assert set(answers) == {200}, (answers, retried)

    assert cluster.operate("pause")[0] == 200
    newest = cluster.get("versions")["candidate"]
    status, health = cluster.operate("rollback?version=0")
    assert (status, health["version"]) == (200, newest + 1)
    began = time.monotonic()
    wait_for(lambda: cluster.versions == [newest + 1] * 2)
    assert time.monotonic() - began < 5
    assert cluster.predict(0)[1]["adapted"] is False
    assert cluster.operate("rollback?version=999")[0] == 404
    text = cluster.get("metrics")
    for replica in ("learner", *cluster.get("health")["replicas"]):
        assert f'acclimate_version{{replica="{replica}"}} {newest + 1}.0' in text
    assert cluster.end() == ""
    assert cluster.process.returncode == 0
    wait_for(lambda: not cluster.processes("Predictor"))


def test_mistakes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    def error(*words: str) -> str:
        assert main(["serve", "--model", "acclimate:digits", *words]) == 2
        return capsys.readouterr().err

    assert "--address needs --replicas N" in error("--address", "auto")
    assert "expected replicas >= 1, got 0" in error("--replicas", "0", "--state", "x")
    assert "expected --state DIR" in error("--replicas", "2")
    assert "cannot be served" in error("--replicas", "2", "--recipe", "lame")


def test_the_application_is_made_from_words_for_serve_run() -> None:
    from acclimate.errors import AcclimateError
    from acclimate.serve.on_ray import build

    words = {"model": "acclimate:digits", "state": "versions/", "replicas": "3", "every": "4"}
    made = build({**words, "learn_batch": "32", "client_share": "0.5"})
    deployment = made._bound_deployment
    assert deployment.num_replicas == 3
    plan = deployment.init_args[0]
    assert (plan.settings.every, plan.settings.learn_batch) == (4, 32)
    assert plan.settings.client_share == 0.5
    assert plan.source().class_count == 10
    with pytest.raises(AcclimateError, match="expected model=SPEC"):
        build({})
    with pytest.raises(AcclimateError, match="unknown argument 'evry'"):
        build({**words, "evry": "3"})


# The learner alone, as Ray Serve calls it.


def plan_of(folder: Path, **changes: Any) -> Any:
    from acclimate.models.networks.digits import load_digits_model
    from acclimate.serve.on_ray import Plan

    own = {"recipe": changes.pop("recipe", "ent")}
    if own["recipe"] == "ent":
        own["options"] = QUICK
    return Plan(load=load_digits_model, folder=str(folder), settings=settings(**changes), **own)


def taught(plan: Any, version: int = 2) -> Any:
    """A learner that two replicas have sent images until it made a version."""
    from acclimate.serve.on_ray import Learner

    learner, at = Learner(plan), 0
    until = time.monotonic() + 60
    while True:
        for replica in ("a", "b"):
            images = INPUT[at : at + 16].numpy()
            news = asyncio.run(learner.news(replica, (0, "?"), images, [replica] * len(images), []))
            at = (at + 16) % 960
        if news.version.number >= version:
            return learner
        assert time.monotonic() < until


def test_a_learner_has_news_for_replicas_and_learns_on_after_a_restart(tmp_path: Path) -> None:
    import torch

    from acclimate.models.networks.digits import load_digits_model
    from acclimate.serve.follower import with_tensors

    learner = taught(plan_of(tmp_path))
    asyncio.run(learner.operate("pause"))
    news = asyncio.run(learner.news("a", (0, "?"), None, [], []))
    assert news.version.adapted
    assert news.wanted == 0  # it is paused
    source = load_digits_model().model
    assert 0 < len(news.tensors) < len(source.state_dict())
    model = with_tensors(source, {k: torch.tensor(v) for k, v in news.tensors.items()})
    with torch.no_grad():
        assert not torch.equal(model(INPUT[:9]), source(INPUT[:9]))
    known = news.version.number, news.version.created
    assert asyncio.run(learner.news("a", known, None, [], [])).version is None
    assert set(asyncio.run(learner.status())["replicas"]) == {"a", "b"}
    assert asyncio.run(learner.operate("rollback", 999))[0] == "NoVersionError"
    asyncio.run(learner.operate("resume"))
    learner._background.close()

    again = taught(plan_of(tmp_path), known[0] + 2)
    versions = asyncio.run(again.listed())
    assert [each.number for each in versions][:2] == [0, 1]
    assert versions[-1].step > news.version.step
    again._background.close()


def test_metrics_of_all_are_one_page_each_under_its_name(tmp_path: Path) -> None:
    from acclimate.serve.follower import SharedMetrics

    learner = taught(plan_of(tmp_path))
    for name, images in (("a", 3), ("b", 4)):
        measured = SharedMetrics(settings())
        measured.on_batch(images=images, requests=1, seconds=0.01)
        asyncio.run(learner.news(name, (0, "?"), None, [], measured.families()))
    for _ in range(2):  # reading changes nothing
        text = asyncio.run(learner.metrics()).decode()
        assert text.count("# TYPE acclimate_answered_images_total counter") == 1
        assert 'acclimate_answered_images_total{replica="a"} 3.0' in text
        assert 'acclimate_answered_images_total{replica="b"} 4.0' in text
        assert 'acclimate_estimated_error{model="adapted",replica="learner"} 0.' in text
    learner._background.close()


def test_a_frozen_application_learns_nothing_and_layers_cannot_be_sent(tmp_path: Path) -> None:
    from acclimate.errors import AcclimateError
    from acclimate.serve.on_ray import Learner

    frozen = Learner(plan_of(tmp_path, mode="frozen"))
    news = asyncio.run(frozen.news("a", (0, "?"), INPUT[:3].numpy(), ["x"] * 3, []))
    assert (news.wanted, news.version) == (0, None)
    assert asyncio.run(frozen.status())["learning"] == "never"
    assert [each.number for each in asyncio.run(frozen.listed())] == [0]
    assert "frozen" in str(asyncio.run(frozen.operate("reset"))[1])
    with pytest.raises(AcclimateError, match=r"adds layers .* without --replicas"):
        Learner(replace(plan_of(tmp_path / "x"), options={"selector": "input-module"}))
