"""A run from top to bottom: what it scores, what it records, and which state it returns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard
from acclimate.guard.verdict import label_free_score
from digit_runs import INPUT, LABELS, adapt, same, weights


def test_before_update_and_after_epoch_are_kept_apart():
    history = adapt(labels=LABELS).history
    assert [record.epoch for record in history.epochs] == [1, 2]
    first, second = history.epochs
    assert first.before_update.loss is not None
    assert first.after_epoch.loss is None
    # Passes over all images go in one order; predictions before updates in the epoch's own batches.
    assert history.start.entropy > first.after_epoch.entropy > second.after_epoch.entropy
    assert first.before_update.entropy != first.after_epoch.entropy
    assert 0 < first.drift < second.drift
    for scores in (history.source, history.start, first.before_update, first.after_epoch):
        assert (scores.images, scores.labelled) == (150, 150)
        assert sum(scores.class_counts) == 150
    assert history.source.agreement is None or history.source.agreement == 1
    assert history.start.agreement < 1


def test_scored_at_the_end_alone_the_same_comes_out():
    options = {"epochs": 3, "optimizer.lr": 0.01}
    whole, end = (adapt(options=options, score=score) for score in ("epochs", "end"))
    assert torch.equal(whole.predictions, end.predictions)
    for ours, theirs in zip(*(r.model.state_dict().values() for r in (whole, end)), strict=True):
        assert torch.equal(ours, theirs)
    assert [record.after_epoch is None for record in end.history.epochs] == [True, True, False]
    assert end.history.epochs[-1] == whole.history.epochs[-1]
    assert end.history.final == whole.history.final


def test_a_folder_with_another_score_is_another_run(tmp_path):
    adapt(out=tmp_path / "run", score="end")
    with pytest.raises(AcclimateError, match="which differs in score"):
        adapt(out=tmp_path / "run")


def test_a_run_that_is_stopped_ends_there():
    options = {"epochs": 3, "optimizer.lr": 30.0}
    result = adapt(options=options, guard=Guard(action="stop", check_every=2), score="end")
    stopped = result.history.epochs[-1]
    assert stopped.epoch < 3
    assert stopped.after_epoch is not None


@torch.no_grad()
def test_the_gap_between_stored_and_batch_statistics_is_recorded():
    result = adapt(data=INPUT[:64], recipe="bn", options={}, batch_size=64)
    assert result.history.statistics_gap == 0  # one batch: its statistics are the stored ones
    small = adapt(recipe="bn", options={}, batch_size=4)
    assert 0 < small.history.statistics_gap < 0.5
    assert adapt(recipe="none", options={}).history.statistics_gap is None


def test_the_gap_belongs_to_the_state_that_is_kept():
    # Group norm has no statistics, so a gap could only come from comparing two different states.
    torch.manual_seed(0)
    group = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    )
    result = adapt(group, options={"epochs": 3, "optimizer.lr": 3.0}, keep="best", guard="observe")
    assert result.history.kept_epoch < 3
    assert result.history.statistics_gap == 0


def test_without_an_estimate_keep_best_returns_the_state_with_the_best_label_free_score():
    options = {"epochs": 4, "optimizer.lr": 3.0}
    best = adapt(options=options, guard="observe", keep="best", estimate=False)
    scores = [best.history.start, *(r.after_epoch for r in best.history.epochs)]
    drifts = [0.0, *(r.drift for r in best.history.epochs)]
    sane = {i: label_free_score(s) for i, s in enumerate(scores) if drifts[i] <= 0.15}
    assert best.history.kept_epoch == max(sane, key=sane.get) < 4


def test_keep_best_returns_the_state_that_learning_is_estimated_to_have_gained_most_by():
    options = {"epochs": 4, "optimizer.lr": 3.0}
    last = adapt(options=options, guard="observe")
    best = adapt(options=options, guard="observe", keep="best")
    kept = best.history.kept_epoch
    assert last.history.kept_epoch is None
    assert kept < 4
    changes = {0: 0.0}
    for number, record in enumerate(best.history.epochs, start=1):
        if record.drift <= 0.15:
            changes[number] = record.estimated_change.value
    assert kept == min(changes, key=changes.get)
    if kept:
        again = adapt(options={**options, "epochs": kept}, guard="observe")
        assert same(weights(best), weights(again))
    assert not same(weights(best), weights(last))
