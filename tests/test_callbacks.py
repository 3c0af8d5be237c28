"""What is called while a model adapts, and the loggers."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import acclimate
from acclimate.callbacks import CSV, Callback, MLflow, StepRecord, TensorBoard, WandB
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.guard.guard import Guard
from acclimate.guard.history import EpochRecord, Event
from nets import bn_net, images

TIGHT = Guard(max_drift=1e-9, check_every=2)


class Recording(Callback):
    def __init__(self) -> None:
        self.steps: list[StepRecord] = []
        self.epochs: list[EpochRecord] = []
        self.events: list[Event] = []

    def on_step_end(self, step: StepRecord) -> None:
        self.steps.append(step)

    def on_epoch_end(self, epoch: EpochRecord) -> None:
        self.epochs.append(epoch)

    def on_event(self, event: Event) -> None:
        self.events.append(event)


def adapt(**options: Any) -> acclimate.AdaptationResult:
    chosen = {"optimizer.lr": 1e-2, "epochs": 2}
    return acclimate.adapt(
        bn_net(), images(96), "ent", options=chosen, batch_size=32, progress=False, **options
    )


def run(stream: acclimate.Stream) -> None:
    for seed in range(4):
        stream(images(7, seed=seed))  # too few to estimate an error from


def test_adapt_calls_after_every_step_and_epoch() -> None:
    seen = Recording()
    result = adapt(callbacks=[seen])
    assert [(step.step, step.images) for step in seen.steps] == [(n, 32) for n in range(1, 7)]
    assert all(step.loss is not None and torch.isfinite(step.loss) for step in seen.steps)
    assert seen.epochs == result.history.epochs
    assert seen.events == []


def test_adapt_reports_what_the_guard_saw() -> None:
    seen = Recording()
    result = adapt(callbacks=[seen], guard=TIGHT)
    assert seen.events == result.history.events
    assert len(seen.events) == 1


def test_callbacks_change_nothing_of_the_result() -> None:
    with_calls, without = adapt(callbacks=[Recording()]), adapt()
    after = without.model.state_dict()
    assert all(torch.equal(v, after[k]) for k, v in with_calls.model.state_dict().items())


def test_a_stream_calls_after_every_step_and_does_not_warn_as_well() -> None:
    seen = Recording()
    options = {"optimizer.lr": 1e-2}
    stream = acclimate.Stream(bn_net(), "ent", options=options, guard=TIGHT, callbacks=[seen])
    run(stream)
    assert len(seen.steps) == 4
    assert seen.events == stream.events
    assert seen.events
    alone = acclimate.Stream(bn_net(), "ent", options=options, guard=TIGHT)
    with pytest.warns(AcclimateWarning, match="learning parameters moved"):
        run(alone)


def test_a_paused_stream_takes_no_steps() -> None:
    seen = Recording()
    stream = acclimate.Stream(bn_net(), "ent", callbacks=[seen])
    stream.pause()
    stream(images(32))
    assert seen.steps == []


@pytest.mark.parametrize("wrong", [[print], ["csv"], [Recording]])
def test_what_is_no_callback_is_refused_before_anything_runs(wrong: Any) -> None:
    with pytest.raises(AcclimateError, match="expected callbacks="):
        adapt(callbacks=wrong)
    with pytest.raises(AcclimateError, match="expected callbacks="):
        acclimate.Stream(bn_net(), "ent", callbacks=wrong)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_csv_file_has_every_loss_epoch_and_event(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.csv"
    result = adapt(callbacks=[CSV(path)])
    named = [row["name"] for row in rows(path)]
    assert named.count("step/loss") == 6
    assert named.count("epoch/drift") == 2
    drift = [float(row["value"]) for row in rows(path) if row["name"] == "epoch/drift"]
    assert drift == pytest.approx([epoch.drift for epoch in result.history.epochs])
    adapt(callbacks=[CSV(path)], guard=TIGHT)  # continues it
    events = [row["value"] for row in rows(path) if row["name"] == "event"]
    assert len(events) == 1
    assert "moved by" in events[0]
    assert sum(row["name"] == "step/loss" for row in rows(path)) > 6


def test_a_csv_file_takes_every_so_many_steps(tmp_path: Path) -> None:
    adapt(callbacks=[CSV(tmp_path / "log.csv", every=3)])
    steps = [row["step"] for row in rows(tmp_path / "log.csv") if row["name"] == "step/loss"]
    assert steps == ["3", "6"]
    with pytest.raises(AcclimateError, match="every >= 1"):
        CSV(tmp_path / "log.csv", every=0)


def test_what_cannot_be_written_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(AcclimateError, match="could not write"):
        CSV(tmp_path).on_event(Event(step=1, trouble="a", action="b"))


@pytest.mark.parametrize(
    ("make", "package"),
    [(lambda: TensorBoard("runs"), "tensorboard"), (WandB, "wandb"), (MLflow, "mlflow")],
)
def test_a_tracker_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, make: Any, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(AcclimateError, match=f"pip install {package}"):
        make()


def test_tensorboard_gets_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    adapt(callbacks=[TensorBoard(tmp_path)])
    assert any(path.stat().st_size for path in tmp_path.iterdir())


def test_mlflow_gets_finite_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[dict[str, float], int]] = []
    tags: list[tuple[str, str]] = []
    stub = SimpleNamespace(
        log_metrics=lambda values, step: logged.append((values, step)),
        set_tag=lambda name, value: tags.append((name, value)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", stub)
    adapt(callbacks=[MLflow()], guard=TIGHT)
    assert logged[0][0].keys() == {"step/loss"}
    assert tags[0][0] == "event.2"
    logged.clear()
    MLflow().log({"a": float("nan"), "b": 1.0}, step=3)
    assert logged == [({"b": 1.0}, 3)]


def test_weights_and_biases_uses_the_open_run(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[int] = []
    run = SimpleNamespace(
        log=lambda values, step: logged.append(step), alert=lambda title, text: None
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    adapt(callbacks=[WandB()])
    assert sorted(set(logged)) == [1, 2, 3, 4, 5, 6]
