"""A replica whose learner is elsewhere: here one that can be taken away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("prometheus_client")

from acclimate.errors import AcclimateError
from acclimate.models.networks.digits import load_digits_model
from acclimate.serve import Version
from acclimate.serve.follower import Follower, News, SharedMetrics, UnreachableError
from acclimate.serve.replica import Source
from acclimate.serve.versions import NoVersionError, now
from serving import INPUT, send, settings, wait_for

SOURCE = Source.of(load_digits_model(), device="cpu")


class Elsewhere:
    """What a replica asks; ``there`` is whether it can be reached."""

    def __init__(self, *, wanted: int = 0) -> None:
        self.there, self.wanted = True, wanted
        self.newest: News | None = None
        self.images: list[Any] = []
        self.clients: list[str] = []
        self.known: tuple[int, str] = (-1, "")
        self.families: list[Any] = []

    def __call__(self, method: str, *arguments: Any) -> Any:
        if not self.there:
            raise ConnectionError("it was killed")
        return getattr(self, method)(*arguments)

    def news(
        self, name: str, known: tuple[int, str], images: Any, clients: list[str], families: Any
    ) -> News:
        self.known, self.families = known, families
        if images is not None:
            self.images.append(images)
            self.clients += clients
        newest = self.newest
        if newest is None or (newest.version.number, newest.version.created) == known:
            return News(wanted=self.wanted)
        return News(wanted=self.wanted, version=newest.version, tensors=newest.tensors)

    def publish(self, number: int, bias: float) -> None:
        """A version that differs in one tensor."""
        name = list(SOURCE.model.state_dict())[-1]
        tensor = SOURCE.model.state_dict()[name] + bias * torch.arange(10)
        version = Version(number=number, cause="learning", created=now(), adapted=True)
        self.newest = News(wanted=0, version=version, tensors={name: tensor.numpy()})

    def status(self) -> dict[str, Any]:
        return {"learning": "yes"}

    def operate(self, action: str, number: int | None = None) -> tuple[str, str | None]:
        if number == 99:
            return "NoVersionError", "no version 99; kept are 0"
        if number == 98:
            return "AcclimateError", "not now"
        self.publish(7, 0.0)
        return "", None


@contextmanager
def following(learner: Elsewhere, **changes: Any) -> Iterator[Follower]:
    metrics = SharedMetrics(settings(**changes))
    follower = Follower(
        SOURCE, settings(**changes), learner, recipe="ent", name="one", metrics=metrics
    )
    try:
        yield follower
    finally:
        follower.close()


def classes(follower: Follower) -> list[int]:
    found: list[int] = follower.predict(INPUT[:32]).result(30).probabilities.argmax(dim=1).tolist()
    return found


def test_a_replica_predicts_with_the_newest_version_from_its_start_on() -> None:
    learner = Elsewhere()
    learner.publish(3, 100.0)
    with following(learner) as follower:
        assert follower.version.number == 3
        assert set(classes(follower)) == {9}
        learner.publish(4, -100.0)
        wait_for(lambda: follower.version.number == 4)
        assert set(classes(follower)) == {0}
        learner.publish(2, 100.0)  # a learner whose last versions were lost goes back
        wait_for(lambda: follower.version.number == 2)
        wait_for(lambda: learner.known[0] == 2)


def test_in_shadow_mode_versions_are_known_and_the_source_model_predicts() -> None:
    learner = Elsewhere()
    learner.publish(3, 100.0)
    with following(learner, mode="shadow") as follower:
        assert (follower.version.number, follower.candidate.number) == (0, 3)
        assert len(set(classes(follower))) > 3


def test_without_its_learner_it_predicts_with_what_it_has() -> None:
    learner = Elsewhere(wanted=32)
    learner.publish(3, 100.0)
    with following(learner) as follower:
        learner.there = False
        wait_for(lambda: not follower.reached)
        assert set(classes(follower)) == {9}
        assert "try again" in follower.status()["not_learning_because"]
        assert [version.number for version in follower.listed()] == [3]
        with pytest.raises(UnreachableError, match="try again in a moment"):
            follower.pause()
        learner.publish(4, -100.0)
        learner.there = True
        wait_for(lambda: follower.version.number == 4)


def test_a_uniform_sample_of_the_images_is_sent_and_no_more_than_is_wanted() -> None:
    learner = Elsewhere(wanted=50)
    marked = INPUT[:1].repeat(1000, 1, 1, 1)
    marked[:, 0, 0, 0] = torch.linspace(0, 1, 1000)
    places: list[float] = []
    with following(learner) as follower:
        for _ in range(8):
            with follower._syncing:  # so that all thousand come between two questions
                wait_for(lambda: follower._wanted == 50)
                send(follower, marked, each=50, client="me")
            before = len(learner.images)
            wait_for(lambda before=before: len(learner.images) > before)
    assert max(map(len, learner.images)) <= 50
    places = np.concatenate(learner.images)[:, 0, 0, 0].tolist()
    assert len(places) >= 400
    assert set(learner.clients) == {"me"}
    halves = np.histogram(places, bins=4, range=(0, 1))[0] / len(places)
    np.testing.assert_allclose(halves, 0.25, atol=0.1)


def test_what_an_operator_asks_is_done_by_the_learner() -> None:
    learner = Elsewhere()
    with following(learner) as follower:
        follower.rollback(0)
        assert follower.version.number == 7  # at once, for the one who asked
        with pytest.raises(NoVersionError, match="kept are 0"):
            follower.rollback(99)
        with pytest.raises(AcclimateError, match="not now"):
            follower.rollback(98)
        assert follower.status()["learning"] == "yes"


def test_metrics_are_sent_to_the_learner_and_its_own_are_shown_without_it() -> None:
    learner = Elsewhere()
    with following(learner) as follower:
        follower.predict(INPUT[:5]).result(30)
        wait_for(
            lambda: any(
                sample.name == "acclimate_answered_images_total" and sample.value == 5
                for family in learner.families
                for sample in family.samples
            )
        )
        metrics = follower._metrics
        assert metrics is not None
        assert b"acclimate_answered_images_total 5.0" in metrics.text()
        metrics.everyone = lambda: b"of all"
        assert metrics.text() == b"of all"
        metrics.everyone = lambda: learner("unknown")
        learner.there = False
        assert b"acclimate_answered_images_total 5.0" in metrics.text()
