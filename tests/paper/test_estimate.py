"""How long it will take."""

from __future__ import annotations

import pytest

from acclimate.bench import Job
from acclimate.paper import estimate
from acclimate.paper.estimate import work_of
from tiny_data import made_up


def job(recipe="none", *, images=100, **changes):
    values = {"model": "acclimate:digits", "dataset": "mnist", "recipe": recipe, "images": images}
    return Job.of(**{**values, **changes})


def test_scaled_by_images():
    done = made_up(job(), images=100, seconds=2.0)
    found = estimate([job(images=1000)], [done])
    assert found.seconds == pytest.approx(20.0)
    assert str(found) == "1 job to run on 1,000 images, about 20 s"


def test_scaled_by_epochs():
    one, three = (job("ent", options={"epochs": n, "optimizer.lr": 1e-3}) for n in (1, 3))
    done = made_up(one, images=100, seconds=6.0, recipe={"epochs": 1})
    assert estimate([three], [done]).seconds == pytest.approx(14.0)
    assert work_of(three) > work_of(one) > work_of(job("bn")) > work_of(job())


def test_workers_share_the_work():
    done = made_up(job(), images=100, seconds=2.0)
    jobs = [job(seed=seed) for seed in range(4)]
    assert estimate(jobs, [done], workers=4).seconds == pytest.approx(2.0)
    assert "with 4 workers" in str(estimate(jobs, [done], workers=4))


def test_without_results_a_few_images_are_tried():
    found = estimate([job()], [], time_image=lambda job: 0.5)
    assert (found.seconds, found.measured) == (50.0, ("acclimate:digits",))


def test_unknown_is_reported():
    assert "unknown" in str(estimate([job()], []))
    known = made_up(job(), images=100, seconds=2.0)
    both = estimate([job(), job(model="paper:resnet50")], [known])
    assert both.unknown == ("paper:resnet50",)
    assert str(both).endswith("and those of paper:resnet50, unknown")


def test_nothing_to_do():
    assert str(estimate([], [])) == "nothing to run"
