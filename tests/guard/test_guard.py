"""The guard: what it sees in real runs, and what it does about it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import acclimate
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.guard.guard import Guard, Watch, make_guard
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models.libraries import import_torchvision
from acclimate.models.networks.digits import load_digits_model

CLEAN, LABELS = (part[:400] for part in digits("held-out"))
BLURRED = corrupt(CLEAN, "gaussian_blur", 4, preset="cifar", seed=0)
ACTIONS = ("rollback", "stop", "warn", "observe", "off")

EXPLODING = {"optimizer.lr": 1e30, "epochs": 4}
DRIFTING = {"optimizer.lr": 3.0, "epochs": 4}
COLLAPSING = {
    "optimizer": "adam",
    "optimizer.lr": 0.1,
    "selector": "all",
    "normalization": "source",
    "epochs": 4,
}


def adapt(data=BLURRED, recipe="ent", *, model=None, guard="rollback", options=None, **more):
    settings = {"options": options or {"epochs": 2}, "batch_size": 32, "progress": False, **more}
    model = load_digits_model() if model is None else model
    if getattr(guard, "action", guard) == "warn":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AcclimateWarning)
            return acclimate.adapt(model, data, recipe, guard=guard, **settings)
    return acclimate.adapt(model, data, recipe, guard=guard, **settings)


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return all(torch.equal(first[k], second[k]) for k in second)


# What it sees.


@pytest.mark.parametrize(
    ("options", "guard", "trouble"),
    [
        pytest.param(EXPLODING, Guard(), "not finite", id="non-finite"),
        pytest.param(DRIFTING, Guard(), "learning parameters moved by", id="drift"),
        pytest.param(
            COLLAPSING, Guard(max_drift=1e9), "the classes are collapsing", id="diversity"
        ),
        pytest.param(
            COLLAPSING,
            Guard(max_drift=1e9, min_diversity=0.0),
            "of the source model's predictions are overturned, 0% at the start",
            id="flips",
        ),
    ],
)
def test_each_kind_of_trouble_is_seen_and_undone(options, guard, trouble):
    result = adapt(options=options, guard=guard)
    (event,) = result.history.events
    assert trouble in event.trouble
    assert event.action.startswith("went back to step ")
    assert result.history.epochs[-1].after_epoch.images == 400
    assert torch.isfinite(result.confidence).all()
    assert result.verdict.word in ("helpful", "unchanged")


def test_trouble_in_the_last_steps_is_seen_though_they_fill_no_window():
    result = adapt(options={**EXPLODING, "epochs": 1}, guard=Guard(check_every=1000))
    assert "not finite" in result.history.events[0].trouble
    assert torch.isfinite(result.confidence).all()
    assert all(torch.isfinite(p).all() for p in result.model.parameters())


def test_a_model_with_broken_weights_is_refused():
    model = load_digits_model()
    with torch.no_grad():
        model.model[1].weight[0] = float("inf")
    result = adapt(model=model)
    assert "not finite" in result.history.events[0].trouble
    assert result.verdict.word == "refused"
    assert same_weights(result.model, model.model)


def test_predictions_that_new_statistics_overturn_are_no_flips_of_learning():
    result = adapt(options={"optimizer.lr": 1e-3, "epochs": 2}, guard=Guard(max_flips=0.1))
    assert result.history.start.agreement < 0.5
    assert result.history.events == []


@pytest.mark.parametrize("known", ["at the start", "from its logits"])
@pytest.mark.parametrize(
    ("overturned", "logit", "trouble"),
    [(20, 1.0, False), (40, 1.0, True), (40, 0.2, False), (60, 0.2, True)],
)
def test_what_the_source_model_doubts_may_be_overturned(known, overturned, logit, trouble):
    # Of two classes its confidence is 73 % in one with a logit of 1, 55 % with a logit of 0.2.
    source = torch.tensor([[0.0, logit]]).repeat(100, 1)
    logits = torch.cat([source[:overturned].flip(1), source[overturned:]])
    learner = Learner(load_digits_model().model, get_recipe("ent"))
    watch = Watch()
    if known == "at the start":
        doubted = 1 - float(source.softmax(dim=1).max())
        watch.start(learner, reference=1.0, flips=0.05, doubted=doubted)
        watch.see(logits, None, source_classes=source.argmax(dim=1))
    else:
        watch.start(learner, reference=1.0, flips=0.05)
        watch.see(logits, None, source_logits=source)
    guard = Guard(max_flips=0.3, max_drift=1e9, min_diversity=0.0)
    assert (watch.check(guard, learner) is not None) == trouble


def test_a_good_run_has_no_events():
    assert adapt(recipe="rpl").history.events == []


def test_small_windows_of_many_classes_are_no_collapse():
    # 20 images cannot show half of 1,000 classes; they show some twenty.
    guard, watch = Guard(check_every=10), Watch(reference=900.0)
    learner = Learner(load_digits_model().model, get_recipe("ent"))
    draw = torch.Generator().manual_seed(0)
    for _ in range(10):
        chosen = torch.randint(0, 1000, (2,), generator=draw)
        watch.see(20.0 * torch.nn.functional.one_hot(chosen, 1000).float(), None)
    assert watch.check(guard, learner) is None
    for _ in range(10):
        watch.see(20.0 * torch.nn.functional.one_hot(torch.tensor([7, 7]), 1000).float(), None)
    assert "collapsing" in watch.check(guard, learner)


# What it does.


@pytest.mark.parametrize("action", ACTIONS)
def test_actions(action):
    result = adapt(options=DRIFTING, guard=action)
    events, epochs = result.history.events, result.history.epochs
    words = {"rollback": "went back to step", "stop": "stopped", "warn": "warned"}
    assert bool(events) == (action != "off")
    assert all(e.action.startswith(words.get(action, "recorded")) for e in events)
    assert (len(epochs) < 4) == (action in ("rollback", "stop"))
    expected = {"stop": "refused", "warn": "harmful", "observe": "harmful", "off": "unclear"}
    assert result.verdict.word == expected.get(action, result.verdict.word)


def test_rolling_back_restores_the_state_before_the_last_good_check():
    # 13 steps an epoch, checked every 5th: good at 5 and 10; the state of step 5 is the one kept.
    guard = Guard(check_every=5, max_drift=1e9, max_flips=1.0)
    options = {"optimizer.lr": 1e-2, "epochs": 1}
    learner = Learner(load_digits_model().model, get_recipe("ent", options), batch_size=32)
    watch = Watch()
    watch.start(learner, reference=1.0)
    kept = {}
    images = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for step in range(1, 16):
        watch.see(*vars(learner.step(images)).values())
        kept[step] = [p.detach().clone() for p in learner.learning.values()]
        if watch.steps >= guard.check_every:
            strict = Guard(check_every=5, max_drift=1e-9) if step == 15 else guard
            assert (watch.check(strict, learner) is not None) == (step == 15)
    assert watch.roll_back(learner) == 5
    assert learner.steps == 5
    now = list(learner.learning.values())
    assert all(torch.equal(p, q) for p, q in zip(now, kept[5], strict=True))


def test_observing_changes_nothing():
    observed = adapt(options=DRIFTING, guard="observe")
    unguarded = adapt(options=DRIFTING, guard="off")
    assert observed.history.events
    assert same_weights(observed.model, unguarded.model)


def test_warning_says_what_is_wrong_and_goes_on():
    with pytest.warns(AcclimateWarning, match="learning parameters moved by"):
        acclimate.adapt(
            load_digits_model(), BLURRED, "ent", options=DRIFTING, guard="warn", progress=False,
            batch_size=32,
        )  # fmt: skip


def test_the_best_state_is_judged_without_the_trouble_that_came_after_it():
    result = adapt(options=DRIFTING, guard="observe", keep="best")
    assert result.history.kept_epoch == 0
    assert result.history.events
    assert result.verdict.word == "helpful"


def test_off_costs_nothing_and_says_that_nothing_was_judged():
    for labels in (None, LABELS):
        result = adapt(guard="off", labels=labels)
        assert str(result.verdict) == "unclear: the guard was off and judged nothing"
        assert result.history.start is None
        assert (result.history.source is None) == (labels is None)


# Refusal.


def test_refused_means_exactly_the_source_model():
    source = load_digits_model()
    result = adapt(options=DRIFTING, guard="stop", labels=LABELS)
    assert result.verdict.word == "refused"
    assert "the source model is returned" in result.verdict.reason
    assert same_weights(result.model, source.model)
    assert result.error_after == result.error_before
    untouched = adapt(recipe="none", options={"epochs": 1}, labels=LABELS)
    assert torch.equal(result.predictions, untouched.predictions)
    assert torch.equal(result.confidence, untouched.confidence)


@pytest.mark.parametrize("recipe", ["bn", "ent", "rpl"])
def test_a_set_of_two_classes_is_refused(recipe):
    images, labels = digits("held-out")
    two = np.isin(labels, (3, 5))
    source = load_digits_model()
    result = acclimate.adapt(source, images[two], recipe, labels=labels[two], progress=False)
    assert result.verdict.word == "refused"
    assert "a few of the classes" in result.verdict.reason
    assert same_weights(result.model, source.model)
    assert result.error_after == result.error_before < 5


# Temperatures, names, thresholds.


@pytest.mark.parametrize(
    ("recipe", "options", "collapses"),
    [
        ("soft", {"objective.student_temperature": 0.5}, True),
        ("soft", {"objective.student_temperature": 2.0}, False),
        ("ent", {"objective.student_temperature": 0.4}, True),
        ("ent", {"objective.student_temperature": 0.6}, False),
        ("hard", {}, False),
        ("rpl", {}, False),
    ],
)
def test_temperatures_in_the_collapse_region_are_warned_of(recipe, options, collapses):
    options = {"epochs": 1, **options}
    if collapses:
        with pytest.warns(AcclimateWarning, match=r"collapse is likely.*Proposition 1"):
            adapt(BLURRED[:64], recipe, options=options)
        adapt(BLURRED[:64], recipe, options=options, guard="off")  # and says nothing when off
    else:
        adapt(BLURRED[:64], recipe, options=options)  # a warning would be an error here


def test_guards_are_named_or_made():
    assert make_guard("stop") == Guard(action="stop")
    assert make_guard(own := Guard(max_drift=0.5)) is own
    with pytest.raises(
        AcclimateError, match=r"unknown guard action 'roll'.*did you mean 'rollback'"
    ):
        make_guard("roll")
    with pytest.raises(AcclimateError, match="expected check_every >= 1, got 0"):
        Guard(check_every=0)


def test_a_refused_run_takes_its_adapters_out_again():
    import_torchvision()
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    net = timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=8, num_classes=4, depth=1
    )
    options = {"selector": "adapters", "optimizer.lr": 1e30, "epochs": 1}
    result = acclimate.adapt(
        net, torch.rand(80, 3, 16, 16), "ent", options=options, guard="stop", progress=False
    )
    assert result.verdict.word == "refused"
    assert same_weights(result.model, net)
    assert result.model.state_dict().keys() == net.state_dict().keys()
    assert any("new layers" in note for note in result.notes)
