"""The selection protocol: what is best on the hold-out corruptions, of what is whole."""

from __future__ import annotations

import pytest

from acclimate.bench import Result
from acclimate.bench.selection import (
    check_leave_one_out,
    check_selection,
    choose,
    choose_from,
    jobs_by_recipe,
    leave_one_out,
    refused,
    settings_of,
)
from acclimate.errors import AcclimateError
from searches import search_job, search_result, searched, searched_settings

SPATTER, BLUR = "cifar/spatter:{}", "cifar/gaussian_blur:{}"


def test_the_lowest_mean_error_decides_over_rates_and_epochs():
    errors = {
        (1e-3, SPATTER.format(1)): [30.0, 25.0, 20.0],
        (1e-2, SPATTER.format(1)): [22, 40, 90],
    }
    choice = choose(*searched(errors))
    assert choice.options == {"optimizer.lr": 1e-3, "epochs": 3}
    assert (choice.error, choice.candidates) == (20.0, 6)
    assert choice.chosen_on == ("cifar10 cifar/spatter:1",)


def test_each_corruption_counts_the_same_however_many_severities_it_has():
    places = [SPATTER.format(1), SPATTER.format(3), SPATTER.format(5), BLUR.format(1)]
    low_on_spatter = dict(zip([(1e-3, p) for p in places], [[10], [10], [10], [40]], strict=True))
    low_on_blur = dict(zip([(1e-2, p) for p in places], [[20], [20], [20], [20]], strict=True))
    choice = choose(*searched({**low_on_spatter, **low_on_blur}))
    # Over all parts 17.5 would beat 20; over corruptions 25 does not.
    assert choice.options["optimizer.lr"] == 1e-2
    assert choice.error == 20.0


def test_seeds_are_averaged_over():
    jobs = [
        search_job(lr, SPATTER.format(1), epochs=1, seed=s) for lr in (1e-3, 1e-2) for s in (0, 1)
    ]
    results = [search_result(j, [e]) for j, e in zip(jobs, [10.0, 30.0, 18.0, 18.0], strict=True)]
    choice = choose(jobs, {result.key: result for result in results})
    assert (choice.options["optimizer.lr"], choice.error) == (1e-2, 18.0)


@pytest.mark.parametrize(
    ("errors", "chosen"),
    [
        ({1e-3: [20.0, 20.0], 1e-2: [20.0, 20.0]}, (1e-3, 1)),
        ({1e-3: [30.0, 20.0], 1e-2: [20.0, 30.0]}, (1e-3, 2)),
        ({1e-3: [30.0, 30.0, 20.0], 2e-3: [20.0, 30.0, 30.0]}, (2e-3, 1)),
    ],
)
def test_of_the_same_errors_the_one_that_moves_least(errors, chosen):
    found = choose(*searched({(lr, SPATTER.format(1)): after for lr, after in errors.items()}))
    assert (found.options["optimizer.lr"], found.options["epochs"]) == chosen


def test_what_lacks_a_run_is_not_chosen_and_says_why():
    errors = {
        (lr, shift.format(1)): [error]
        for lr, error in ((1e-3, 30.0), (1e-2, 10.0), (1e-1, 5.0))
        for shift in (SPATTER, BLUR)
    }
    jobs, results = searched(errors)
    del results[jobs[3].key]
    results[jobs[5].key] = Result.failed(jobs[5], "out of memory\nat line 3")
    assert choose(jobs, results).options["optimizer.lr"] == 1e-3
    whole, unrun, failed = settings_of(jobs, results)
    assert (whole.complete, whole.missing) == (True, "")
    assert unrun.missing == "1 of 2 runs are missing: not run yet"
    assert failed.missing == "1 of 2 runs are missing: out of memory"
    assert failed.words == "optimizer.lr=0.1"


def test_nothing_is_chosen_where_nothing_is_whole():
    jobs, results = searched({(1e-3, SPATTER.format(1)): [30.0], (1e-3, BLUR.format(1)): [30.0]})
    del results[jobs[0].key]
    assert choose(jobs, results) is None


def test_what_diverged_is_not_chosen_however_low_its_error():
    places = [(1e-3, SPATTER.format(1)), (1e-2, SPATTER.format(1))]
    errors = dict(zip(places, [[30.0, 29.0], [10.0, 9.0]], strict=True))
    records = {places[1]: {"drift": [0.1, None]}}
    choice = choose(*searched(errors, records=records))
    assert choice.options == {"optimizer.lr": 1e-2, "epochs": 1}
    assert choice.candidates == 3


def test_candidates_that_are_alike_are_counted():
    choice = choose(*searched({(rate, SPATTER.format(1)): [20.0, 21.0] for rate in (1e-3, 1e-2)}))
    assert (choice.options["optimizer.lr"], choice.candidates, choice.alike) == (1e-3, 4, 2)


def test_the_longest_of_several_runs_tells_of_the_shorter_ones():
    short, long = (search_job(1e-3, SPATTER.format(1), epochs=n) for n in (1, 3))
    results = [search_result(short, [21.0]), search_result(long, [21.0, 20.0, 22.0])]
    choice = choose([short, long], {result.key: result for result in results})
    assert (choice.options["epochs"], choice.candidates) == (2, 3)


def test_a_recipe_that_learns_nothing_has_no_epochs_to_choose():
    job = search_job(1e-3, SPATTER.format(1), recipe="bn", options={"epochs": 5})
    choice = choose([job], {job.key: search_result(job, [])})
    assert "epochs" not in choice.options
    assert choice.error == 50.0


def test_other_options_are_chosen_too():
    jobs = [
        search_job(
            1e-3, SPATTER.format(1), epochs=1, options={"objective.q": q, "teacher": teacher}
        )
        for q in (0.7, 0.8)
        for teacher in ("instant", "epoch")
    ]
    results = [search_result(j, [e]) for j, e in zip(jobs, [20.0, 19.0, 18.0, 21.0], strict=True)]
    choice = choose(jobs, {result.key: result for result in results})
    assert (choice.options["objective.q"], choice.options["teacher"]) == (0.8, "instant")


def test_models_and_recipes_have_choices_of_their_own():
    jobs = [search_job(1e-3, None, model=m, recipe=r) for m in ("a", "b") for r in ("ent", "rpl")]
    assert list(jobs_by_recipe(jobs)) == [("a", "ent"), ("a", "rpl"), ("b", "ent"), ("b", "rpl")]


def test_a_domain_that_is_left_out_has_no_say():
    errors = {
        (1e-3, "clipart"): [10.0], (1e-3, "real"): [50.0], (1e-3, "sketch"): [50.0],
        (1e-2, "clipart"): [90.0], (1e-2, "real"): [40.0], (1e-2, "sketch"): [40.0],
    }  # fmt: skip
    settings = searched_settings(errors, dataset="imagenet-d")
    assert choose_from(settings).options["optimizer.lr"] == 1e-3
    found = leave_one_out(settings)
    assert list(found) == ["imagenet-d clipart", "imagenet-d real", "imagenet-d sketch"]
    clipart = found["imagenet-d clipart"]
    assert clipart.options["optimizer.lr"] == 1e-2
    assert (clipart.error, clipart.measured["error"]) == (40.0, 90.0)
    assert clipart.chosen_on == ("imagenet-d real", "imagenet-d sketch")
    real = found["imagenet-d real"]
    assert (real.options["optimizer.lr"], real.measured["error"]) == (1e-3, 50.0)


@pytest.mark.parametrize(
    "given",
    [
        {"dataset": "cifar10", "shift": "cifar/saturate:2"},
        {"dataset": "imagenet-c", "shift": "spatter:5"},
        {"dataset": "imagenet", "shift": "imagenet/speckle_noise:1"},
        {"dataset": "camelyon17", "shift": None, "split": "val"},
    ],
)
def test_what_may_be_chosen_on(given):
    check_selection([search_job(1e-3, given.pop("shift"), **given)])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"dataset": "cifar10", "shift": "cifar/fog:2"}, "fog of cifar10 is a test corruption"),
        ({"dataset": "cifar10", "shift": "cifar/frost-procedural:2"}, "is a test corruption"),
        ({"dataset": "imagenet-c", "shift": "snow:5"}, "choose on dev: --shifts dev"),
        ({"dataset": "cifar10", "shift": None}, "cifar10 without a shift is no hold-out set"),
        ({"dataset": "imagenet-r", "shift": None}, "all of imagenet-r is for reporting"),
        ({"dataset": "imagenet-a", "shift": "imagenet/spatter:1"}, "all of imagenet-a is for"),
        ({"dataset": "imagenet-d", "shift": "sketch"}, "or --leave-one-out"),
        ({"dataset": "camelyon17", "shift": None}, "got its split 'test'; --split val"),
        ({"dataset": "fmow", "shift": None, "split": "id_val"}, "got its split 'id_val'"),
    ],
)
def test_what_may_not(given, why):
    job = search_job(1e-3, given.pop("shift"), **given)
    assert why in refused(job)
    with pytest.raises(AcclimateError, match="--selection oracle"):
        check_selection([job])


def test_leaving_one_out_wants_domains():
    check_leave_one_out([search_job(1e-3, d, dataset="imagenet-d") for d in ("real", "sketch")])
    with pytest.raises(AcclimateError, match="two or more domains"):
        check_leave_one_out([search_job(1e-3, "real", dataset="imagenet-d")])
    both = [search_job(1e-3, s, dataset="imagenet-c") for s in ("spatter:1", "saturate:1")]
    with pytest.raises(AcclimateError, match="got 2 corruption"):
        check_leave_one_out(both)
