"""The server without HTTP: who answers, who learns, and what can be undone."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.data import Preprocessing
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError
from acclimate.guard.history import Event
from acclimate.models.networks.digits import load_digits_model
from acclimate.serve import Server, Settings, Version
from acclimate.serve.batching import FullError
from acclimate.serve.observer import Observer, StepReport
from nets import bn_net
from serving import INPUT, LABELS, learn, send, server, settings, wait_for


class Recording(Observer):
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.versions: list[Version] = []
        self.reports: list[StepReport] = []
        self.dropped = self.learnt = self.answered = 0

    def on_batch(self, *, images: int, requests: int, seconds: float) -> None:
        self.answered += images

    def on_step(self, report: StepReport) -> None:
        self.learnt += report.images
        self.reports.append(report)

    def on_dropped(self, images: int) -> None:
        self.dropped += images

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def on_version(self, version: Version) -> None:
        self.versions.append(version)


def source_probabilities(images: Tensor) -> Tensor:
    with torch.no_grad():
        probabilities: Tensor = load_digits_model().model(images).softmax(dim=1)
    return probabilities


def error_of(target: Server) -> float:
    answer = target.predict(INPUT[-60:]).result(30)
    wrong = answer.probabilities.argmax(dim=1) != torch.from_numpy(LABELS[-60:])
    return float(wrong.double().mean())


def test_a_frozen_server_answers_with_the_source_model() -> None:
    with server(mode="frozen") as frozen:
        send(frozen, INPUT[:200])
        answer = frozen.predict(INPUT[:9]).result(30)
        torch.testing.assert_close(answer.probabilities, source_probabilities(INPUT[:9]))
        assert (answer.version, answer.adapted) == (0, False)
        assert frozen.status()["learning"] == "never"
        for operate in (frozen.pause, frozen.resume, frozen.reset, frozen.rollback):
            with pytest.raises(AcclimateError, match="frozen"):
                operate()


def test_a_live_server_learns_and_answers_better() -> None:
    with server() as live:
        before = error_of(live)
        learn(live, 4)
        wait_for(lambda: live.version.number >= 4)
        assert live.predict(INPUT[:1]).result(30).adapted
        assert error_of(live) < before - 0.1
        assert live.version.changed is not None
        assert live.version.changed > 0.1
        assert live.version.statistics_shift is not None


def test_a_shadow_server_learns_beside_and_answers_with_the_source_model() -> None:
    seen = Recording()
    with server(mode="shadow", observer=seen) as shadow:
        learn(shadow, 3)
        answer = shadow.predict(INPUT[:9]).result(30)
        torch.testing.assert_close(answer.probabilities, source_probabilities(INPUT[:9]))
        assert (answer.version, answer.adapted) == (0, False)
        assert shadow.candidate.number >= 3
        assert seen.versions[-1].changed is not None  # what would change


def test_answers_do_not_depend_on_what_others_send() -> None:
    with server() as live:
        learn(live, 2)
        live.pause()
        version = live.version.number
        alone = live.predict(INPUT[:1]).result(30)
        futures = [live.predict(part) for part in (INPUT[:1], 50 * torch.randn(15, 1, 8, 8))]
        together = futures[0].result(30)
        assert alone.version == together.version == version
        torch.testing.assert_close(alone.probabilities, together.probabilities)


def test_statistics_alone_can_be_served() -> None:
    with server(recipe="bn") as live:
        before = error_of(live)
        learn(live, 1)
        assert error_of(live) < before - 0.1


def test_an_answer_is_of_one_version_however_often_weights_are_swapped() -> None:
    """All rows of an answer are what that version predicts, also while versions change."""
    with server(every=1, batch_size=64) as live:
        known: dict[int, Tensor] = {}
        models: dict[int, tuple[nn.Module, float]] = {}
        publish = live.background.learning.publish

        def remember(model: nn.Module, version: Version) -> None:
            models[version.number] = model, version.temperature or 1.0
            publish(model, version)

        live.background.learning.publish = remember
        probe, until = INPUT[:16], time.monotonic() + 60
        while len(known) < 4 and time.monotonic() < until:
            answer = live.predict(probe).result(30)
            known[answer.version] = answer.probabilities
            send(live, INPUT[:64])
        assert len(known) >= 4
        for number, probabilities in known.items():
            if number in models:
                model, temperature = models[number]
                with torch.no_grad():
                    alone = (model(probe) / temperature).softmax(dim=1)
                torch.testing.assert_close(alone, probabilities, rtol=1e-4, atol=1e-5)


def test_by_itself_a_server_takes_the_recipe_that_fits_the_model_and_says_why() -> None:
    with server(recipe="auto") as live:
        assert live.recipe == "ent"
        assert live.notes[0] == "auto: ent, since the model has batch norm"
    net = nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 10))
    with Server(net, preprocessing=load_digits_model().preprocessing) as live:
        assert live.recipe == "rpl"
        assert live.notes[0] == "auto: rpl, since the model has no batch norm"


def test_the_error_is_estimated_without_labels_and_calibrates_probabilities() -> None:
    """Beside the true errors, which the server does not know."""
    seen = Recording()
    with server(observer=seen) as live:
        before = 100 * error_of(live)
        learn(live, 4)
        live.pause()
        version = live.version
        assert version.error_before is not None
        assert version.error_after is not None
        assert version.error_before == pytest.approx(before, abs=15)
        assert version.error_after == pytest.approx(100 * error_of(live), abs=15)
        assert version.error_after < version.error_before - 10
        assert version.temperature is not None
        answer = live.predict(INPUT[-200:]).result(30)
        assert answer.calibrated
        right = answer.probabilities.argmax(dim=1) == torch.from_numpy(LABELS[-200:])
        confidence = answer.probabilities.amax(dim=1)
        assert float(confidence.mean()) == pytest.approx(float(right.double().mean()), abs=0.15)
        assert live.status()["estimated_error"].startswith("estimated error ")
    assert seen.reports[-1].estimate is not None
    assert not seen.reports[-1].contained


@pytest.mark.parametrize("recipe", ["bn", "ent"])
def test_where_adapting_is_estimated_to_do_harm_the_source_model_predicts(recipe: str) -> None:
    """Clean digits, one class after the other: their statistics mislead."""
    clean, labels = digits("held-out")
    order = torch.from_numpy(labels).argsort(stable=True)
    single = load_digits_model().preprocessing.normalize(torch.from_numpy(clean)[order][:, None])
    seen = Recording()
    with server(observer=seen, recipe=recipe) as live:
        learn(live, 2)
        assert live.version.adapted
        until = time.monotonic() + 60
        while not (live.status()["contained"] and live.version.restored_from == 0):
            assert time.monotonic() < until
            send(live, single[:96])
        assert not live.version.adapted
        assert live.version.cause == "guard"
        assert "adapting does harm" in str(live.version.reason)
        answer = live.predict(single[:9]).result(30)
        torch.testing.assert_close(answer.probabilities, source_probabilities(single[:9]))
        assert any(report.contained for report in seen.reports)
        until = time.monotonic() + 60
        while not live.version.adapted:  # and it adapts again once that helps
            assert time.monotonic() < until
            send(live, INPUT)


def test_the_log_of_the_folder_remembers_what_was_undone(tmp_path: Path) -> None:
    with server(folder=tmp_path, keep=2, max_drift=0.004) as live:
        while live.candidate.number < 3:
            send(live, INPUT[:256])
        live.pause()
        live.rollback()
        live.reset()
        live.resume()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {"pause", "resume", "version"} <= {line["what"] for line in lines}
    causes = [line["cause"] for line in lines if line["what"] == "version"]
    assert causes[-2:] == ["rollback", "reset"]
    assert all(line["time"] for line in lines)
    if "guard" in causes:  # its reason was logged before it acted
        assert any(line["what"] == "event" and "moved by" in line["trouble"] for line in lines)


def test_a_rollback_is_a_version_of_its_own_and_learning_continues_from_it() -> None:
    with server() as live:
        learn(live, 3)
        live.pause()
        wanted = live.listed()[-2]
        probe = INPUT[:20]
        newest = live.predict(probe).result(30).probabilities
        back = live.rollback(wanted.number)
        assert (back.cause, back.restored_from, back.step) == (
            "rollback",
            wanted.number,
            wanted.step,
        )
        assert live.version == back
        assert not torch.equal(live.predict(probe).result(30).probabilities, newest)
        live.resume()
        learn(live, 1)
        later = live.listed()[-1]
        assert later.cause == "learning"
        assert later.number > back.number
        assert wanted.step < later.step <= wanted.step + 4


def test_without_a_number_a_rollback_goes_to_the_version_before() -> None:
    with server() as live:
        learn(live, 3)
        live.pause()
        before = live.listed()[-2]
        assert live.rollback().restored_from == before.number
        with pytest.raises(AcclimateError, match="no version 99; kept are 0, "):
            live.rollback(99)


def test_a_reset_is_the_source_model_again() -> None:
    with server() as live:
        learn(live, 2)
        live.pause()
        back = live.reset()
        assert (back.cause, back.restored_from, back.adapted) == ("reset", 0, False)
        answer = live.predict(INPUT[:9]).result(30)
        torch.testing.assert_close(answer.probabilities, source_probabilities(INPUT[:9]))
        assert not answer.adapted


def test_a_paused_server_learns_nothing() -> None:
    seen = Recording()
    with server(observer=seen) as live:
        live.pause()
        send(live, INPUT[:400])
        assert live.version.number == 0
        assert live.status()["not_learning_because"] == "paused"
        live.resume()
        learn(live, 1)
    assert seen.learnt >= 64


def test_a_restart_continues_with_the_newest_version(tmp_path: Path) -> None:
    with server(folder=tmp_path) as live:
        learn(live, 3)
        live.pause()
        newest, probe = live.version, live.predict(INPUT[:20]).result(30)
    with server(folder=tmp_path) as again:
        assert again.version == newest
        assert again.status()["not_learning_because"] == "paused"
        answer = again.predict(INPUT[:20]).result(30)
        torch.testing.assert_close(answer.probabilities, probe.probabilities)
        again.resume()
        learn(again, 1)
        assert again.version.step > newest.step
        assert again.version.images > newest.images


def test_a_restart_passes_over_a_version_that_is_damaged(tmp_path: Path) -> None:
    with server(folder=tmp_path) as live:
        learn(live, 2)
        live.pause()
        newest = live.version.number
    path = tmp_path / f"version-{newest:08}.safetensors"
    content = bytearray(path.read_bytes())
    del content[-200:]
    path.write_bytes(bytes(content))
    with pytest.warns(acclimate.AcclimateWarning, match="is damaged"):
        again = server(folder=tmp_path)
    with again:
        assert again.version.number == newest - 1
        assert again.predict(INPUT[:4]).result(30).version == newest - 1


# Guards: what a hostile stream can do.


def poison(name: str) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    if name == "one class":
        return INPUT[torch.from_numpy(LABELS == 3)].repeat(12, 1, 1, 1)
    if name == "noise":
        return 3 * torch.randn(1200, 1, 8, 8, generator=draw)
    if name == "black":
        return torch.full((1200, 1, 8, 8), -0.8)
    return 1e30 * torch.randn(1200, 1, 8, 8, generator=draw)  # finite, but not in the network


@pytest.mark.parametrize("name", ["one class", "noise", "black", "overflow"])
def test_poison_does_not_make_answers_broken(name: str) -> None:
    seen = Recording()
    with server(observer=seen, max_drift=0.05) as live:
        learn(live, 2)
        images = poison(name)
        send(live, images)
        wait_for(lambda: seen.learnt + seen.dropped + 96 >= len(images) or not _learns(live))
        answer = live.predict(INPUT[:100]).result(30)
        assert torch.isfinite(answer.probabilities).all()
        assert answer.probabilities.argmax(dim=1).unique().numel() > 3
        assert all(version.drift < 0.06 for version in seen.versions)
        live.reset()
        answer = live.predict(INPUT[:9]).result(30)
        torch.testing.assert_close(answer.probabilities, source_probabilities(INPUT[:9]))


def test_a_version_that_overturns_reference_images_is_held_back() -> None:
    """Clean digits are the reference: statistics of noise are wrong for them."""
    seen = Recording()
    with server(observer=seen, reference=digits("held-out")[0][:200], recipe="bn") as live:
        send(live, poison("noise")[:128])
        wait_for(lambda: seen.events)
        assert any("the reference images" in event.trouble for event in seen.events)
        assert seen.events[-1].action == "held the version back"
        assert live.version.number == 0


def _learns(live: Server) -> bool:
    assert live.background is not None
    return live.background.learns


def test_the_guard_takes_the_served_model_back_with_the_stream() -> None:
    seen = Recording()
    with server(observer=seen, max_drift=0.004, every=1) as live:
        until = time.monotonic() + 60
        while not any(version.cause == "guard" for version in seen.versions):
            assert time.monotonic() < until
            send(live, INPUT[:256])
        back = next(version for version in seen.versions if version.cause == "guard")
        assert back.restored_from is not None
        assert "moved by" in str(back.reason)
        assert back.drift <= 0.004
        assert seen.events


def test_one_client_gives_no_more_than_its_share() -> None:
    seen = Recording()
    with server(observer=seen, client_share=0.25) as live:
        send(live, INPUT[:400], client="a")
        time.sleep(0.2)
        assert seen.learnt == 0  # a quarter is never enough
        assert seen.dropped == 400 - 8
        for client in ("b", "c", "d"):
            send(live, INPUT[:8], client=client)
        wait_for(lambda: seen.learnt == 32)


def test_a_learner_that_fails_leaves_the_answers_alone() -> None:
    with server() as live:
        assert live.background is not None

        def broken(images: Tensor) -> None:
            raise RuntimeError("out of memory")

        step, live.background.learning.step = live.background.learning.step, broken
        send(live, INPUT[:128])
        wait_for(lambda: live.status()["learning"] == "no")
        assert live.status()["not_learning_because"] == "RuntimeError: out of memory"
        assert len(live.predict(INPUT[:3]).result(30).probabilities) == 3
        live.background.learning.step = step
        live.resume()
        learn(live, 1)


# Load.


def test_learning_holds_no_answer_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as live:
        assert live.background is not None
        at_work, may = threading.Event(), threading.Event()

        def slow(images: Tensor) -> None:
            at_work.set()
            may.wait(30)

        monkeypatch.setattr(live.background.learning, "step", slow)
        send(live, INPUT[:64])
        assert at_work.wait(30)
        began = time.monotonic()
        send(live, INPUT[:64])
        assert time.monotonic() - began < 5
        assert not may.is_set()
        may.set()


def test_a_full_queue_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(mode="frozen", queue=64, wait_ms=200, batch_size=64) as frozen:
        frozen.predict(INPUT[:60])
        with pytest.raises(FullError, match="60 images wait"):
            frozen.predict(INPUT[:5])


def test_closing_answers_what_waits() -> None:
    live = server(wait_ms=1000, batch_size=256)
    futures = [live.predict(part) for part in INPUT[:80].split(8)]
    live.close()
    assert all(len(future.result(0).probabilities) == 8 for future in futures)
    assert not live.ready


# Mistakes.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "alive"}, "unknown mode 'alive'; did you mean 'live'"),
        ({"queue": 0}, "expected queue >= 1, got 0"),
        ({"queue": 8}, "a queue of at least max_images"),
        ({"learn_share": 0.0}, "0 < learn_share <= 1"),
        ({"client_share": 1.5}, "0 < client_share <= 1"),
        ({"learn_batch": 1}, "learn_batch >= 2"),
        ({"wait_ms": -1.0}, "wait_ms from 0"),
        ({"max_drift": 0.0}, "max_drift > 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(AcclimateError, match=words):
        settings(**changes)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("lame", "cannot be served: its predictions depend on the other images"),
        ("memo", "cannot be served"),
        ("none", "learns nothing"),
        ("entt", "unknown recipe 'entt'"),
    ],
)
def test_recipes_that_cannot_be_served_are_refused(recipe: str, words: str) -> None:
    with pytest.raises(AcclimateError, match=words):
        Server(load_digits_model(), recipe)


def test_images_of_another_shape_and_unknown_preprocessing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AcclimateError, match="has no record of its preprocessing"):
        Server(bn_net(), "ent")
    with pytest.raises(AcclimateError, match="temperature > 0"):
        Server(load_digits_model(), "ent", temperature=0)
    with pytest.raises(AcclimateError, match="the model failed on images"):
        Server(bn_net(), "ent", preprocessing=Preprocessing(size=(8, 8), mean=(0.5,), std=(0.5,)))
    with server(mode="frozen") as frozen:
        for wrong in (torch.zeros(1, 3, 8, 8), torch.zeros(8, 8), torch.zeros(0, 1, 8, 8)):
            with pytest.raises(AcclimateError, match="expected images as N×1×8×8"):
                frozen.predict(wrong)


def test_a_folder_of_another_recipe_is_refused_and_let_go(tmp_path: Path) -> None:
    with server(folder=tmp_path):
        pass
    with pytest.raises(AcclimateError, match="versions of another model or recipe"):
        server(folder=tmp_path, recipe="bn")
    with server(folder=tmp_path):
        pass


def test_the_default_settings_are_sound() -> None:
    assert Settings().mode == "live"


def test_an_operator_may_look_while_it_learns() -> None:
    """Nothing that is shown changes under the hands of who shows it."""
    with server(every=1, keep=2) as live:
        until = time.monotonic() + 60
        while live.candidate.number < 12:
            assert time.monotonic() < until
            send(live, INPUT[:64], each=32)
            for _ in range(50):
                status, listed = live.status(), live.listed()
                assert status["learning"] == "yes"
                assert [each.number for each in listed] == sorted(each.number for each in listed)
