"""A module that predicts while it learns."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.guard.guard import Guard
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.presets import STREAM
from acclimate.stream import Stream
from nets import Residual, bn_net, gn_net, images, same_tensors, snapshot, tiny_vit

LR = {"optimizer.lr": 0.05}
ADAM = {"optimizer": "adam", "optimizer.lr": 1e-3}
BATCHES = [images(8, seed=seed) for seed in range(12)]


def run(stream: Stream, batches: list[Tensor]) -> list[Tensor]:
    return [stream(batch) for batch in batches]


def test_predictions_come_from_before_the_update_unless_asked_for_after() -> None:
    by_hand = Learner(bn_net(), get_recipe("ent", LR))
    before = [by_hand.step(x).logits for x in BATCHES[:3]]
    torch.testing.assert_close(run(Stream(bn_net(), "ent", options=LR), BATCHES[:3]), before)

    by_hand = Learner(bn_net(), get_recipe("ent", LR))
    after = []
    for x in BATCHES[:3]:
        by_hand.step(x)
        after.append(by_hand.predict(x))
    stream = Stream(bn_net(), "ent", options=LR, predictions="after")
    torch.testing.assert_close(run(stream, BATCHES[:3]), after)
    assert not torch.allclose(before[0], after[0])


@pytest.mark.parametrize(
    ("net", "recipe", "lr"), [(bn_net, "ent", 1e-2), (gn_net, "rpl", 100 / STREAM)]
)
def test_by_default_the_model_tells_the_recipe_and_the_rate(
    net: Callable[[], nn.Module], recipe: str, lr: float
) -> None:
    stream = Stream(net())
    assert stream.learner.recipe.name == recipe
    assert stream.learner.lr == pytest.approx(lr)
    assert f"learning rate {lr:g} for batches of 128" in stream.notes[0]
    assert Stream(net(), recipe).learner.lr == stream.learner.lr
    assert Stream(net(), recipe, options=LR).learner.lr == 0.05


def test_where_no_rate_is_named_it_fits_the_size_of_the_first_batch() -> None:
    stream = Stream(bn_net(), "ent")
    stream(images(32))
    assert stream.learner.lr == pytest.approx(1e-2 / 4)
    assert "scaled linearly to 0.0025 for batches of 32" in stream.notes[-1]
    stream(images(8))
    stream.reset()
    stream(images(32))
    assert stream.learner.lr == pytest.approx(1e-2 / 4)
    named = Stream(bn_net(), "ent", options=LR)
    named(images(32))
    assert named.learner.lr == 0.05


def test_an_unknown_time_to_predict_is_refused() -> None:
    with pytest.raises(AcclimateError, match="expected predictions='before' or 'after', got 'now'"):
        Stream(bn_net(), predictions="now")


def test_the_users_model_is_left_alone_unless_inplace() -> None:
    net = bn_net().train()
    before = snapshot(net)
    run(Stream(net, "ent", options=LR), BATCHES[:3])
    assert same_tensors(snapshot(net), before)
    assert net.training
    assert all(p.requires_grad and p.grad is None for p in net.parameters())
    stream = Stream(net, "ent", options=LR, inplace=True)
    stream(BATCHES[0])
    assert stream.model is net
    assert not same_tensors(snapshot(net), before)


@pytest.mark.parametrize(
    "options",
    [
        {},
        ADAM,
        {"normalization": "running"},
        {"objective.stop_gradient": True, "teacher": "moving-average"},
    ],
)
def test_reset_returns_to_the_source_bit_by_bit(options: dict[str, Any]) -> None:
    stream = Stream(bn_net(), "ent", options={**LR, **options})
    first = run(stream, BATCHES)
    stream.reset()
    assert same_tensors(snapshot(stream.model), snapshot(bn_net()))
    assert all(torch.equal(a, b) for a, b in zip(first, run(stream, BATCHES), strict=True))


def test_pause_predicts_with_the_recipes_statistics_and_resume_learns_on() -> None:
    stream = Stream(bn_net(), "ent", options=LR)
    stream(BATCHES[0])
    stream.pause()
    assert not stream.learns
    kept = snapshot(stream.model)
    paused = run(stream, [BATCHES[1], BATCHES[1]])
    assert torch.equal(*paused)
    assert same_tensors(snapshot(stream.model), kept)
    torch.testing.assert_close(paused[0], stream.learner.predict(BATCHES[1]))
    stream.resume()
    assert stream.learns
    stream(BATCHES[1])
    assert not same_tensors(snapshot(stream.model), kept)


def test_pause_stops_a_running_estimate_too() -> None:
    stream = Stream(bn_net(), "bn", options={"normalization": "running"})
    stream(BATCHES[0])
    stream.pause()
    estimate = stream.learner.statistics.running["1.mean"].clone()
    stream(BATCHES[1])
    assert torch.equal(stream.learner.statistics.running["1.mean"], estimate)
    stream.resume()
    stream(BATCHES[1])
    assert not torch.equal(stream.learner.statistics.running["1.mean"], estimate)


CASES = [
    ("ent", {}),
    ("rpl", ADAM),
    ("hard", {"teacher": "moving-average", "teacher.momentum": 0.5}),
    ("bn", {"normalization": "running"}),
    ("hard", {"normalization": "running", "teacher": "frozen"}),
]


@pytest.mark.parametrize("through_a_file", [False, True])
@pytest.mark.parametrize(("recipe", "options"), CASES)
def test_state_dict_goes_on_in_a_fresh_stream_bit_by_bit(
    recipe: str, options: dict[str, Any], through_a_file: bool
) -> None:
    guard = Guard(check_every=3, max_drift=10.0, min_diversity=0.0)
    first = Stream(bn_net(), recipe, options={**LR, **options}, guard=guard)
    run(first, BATCHES[:4])
    state = first.state_dict()
    if through_a_file:
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
    # Built around another model: everything must come from the state.
    second = Stream(bn_net(seed=9), recipe, options={**LR, **options}, guard=guard)
    run(second, BATCHES[4:6])
    second.load_state_dict(state)
    for x in BATCHES[4:]:
        assert torch.equal(first(x), second(x))
    assert same_tensors(first.get_extra_state(), second.get_extra_state())
    for stream in (first, second):
        stream.reset()
    assert same_tensors(snapshot(second.model), snapshot(bn_net()))
    assert torch.equal(first(BATCHES[0]), second(BATCHES[0]))


def test_state_dict_is_a_copy() -> None:
    stream = Stream(bn_net(), "ent", options=LR)
    stream(BATCHES[0])
    state = stream.get_extra_state()
    kept = {k: v.clone() for k, v in state.items()}
    run(stream, BATCHES[1:4])
    assert same_tensors(state, kept)


def test_a_paused_stream_comes_back_paused() -> None:
    first, second = Stream(bn_net(), "ent"), Stream(bn_net(), "ent")
    first.pause()
    second.load_state_dict(first.state_dict())
    assert not second.learns


def test_a_state_of_another_recipe_is_refused() -> None:
    state = Stream(bn_net(), "ent").state_dict()
    other = Stream(bn_net(), "ent", options={"selector": "last-layer"})
    expected = r'another recipe: expected selector.kind "last-layer", .* got "affine"; make'
    with pytest.raises(AcclimateError, match=expected):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"teacher": "moving-average"}, r'expected teacher.kind "moving-average", .* got "epoch"'),
        ({"objective.teacher_temperature": 0.0}, r"expected objective.teacher_temperature 0.0, "),
        ({"optimizer": "adam"}, r'expected optimizer.kind "adam", .* got "sgd"'),
        ({"filter": "confidence"}, r'expected filter.kind "confidence", .* got "none"'),
        ({"optimizer.momentum": 0.5}, r"expected optimizer.momentum 0.5, .* got 0.9"),
        ({"normalization": "mixture"}, r'expected normalization.kind "mixture", .* got "batch"'),
    ],
)
def test_a_state_of_other_options_is_refused_before_anything_changes(
    options: dict[str, Any], message: str
) -> None:
    taught = Stream(bn_net(seed=1), "soft", options=LR)
    run(taught, BATCHES[:2])
    other = Stream(bn_net(), "soft", options={**LR, **options})
    before = snapshot(other.model)
    with pytest.raises(AcclimateError, match=message):
        other.load_state_dict(taught.state_dict())
    assert same_tensors(snapshot(other.model), before)
    assert other.learner.steps == 0


def test_a_state_of_another_model_is_refused() -> None:
    state = Stream(bn_net(), "ent").state_dict()
    other = Stream(Residual(), "ent")
    with pytest.raises(AcclimateError, match=r"another model or recipe: expected 'first.weight'"):
        other.load_state_dict(state)


def test_a_recipe_by_another_name_is_the_same() -> None:
    mine = replace(get_recipe("ent"), name="mine", summary="my own")
    Stream(bn_net(), mine).load_state_dict(Stream(bn_net(), get_recipe("ent")).state_dict())


def test_episodic_treats_every_batch_as_the_first_and_predicts_after_the_update() -> None:
    stream = Stream(bn_net(), "ent", options=LR, episodic=True)
    logits = run(stream, [BATCHES[0], BATCHES[1], BATCHES[0]])
    assert torch.equal(logits[0], logits[2])
    learner = Learner(bn_net(), get_recipe("ent", LR))
    learner.step(BATCHES[1])
    torch.testing.assert_close(logits[1], learner.predict(BATCHES[1]))


def test_episodic_is_an_episode_per_batch() -> None:
    episodic = Stream(bn_net(), "ent", options=LR, episodic=True)
    named = Stream(bn_net(), "ent", options={**LR, "episode": "batch"})
    assert episodic.learner.recipe == named.learner.recipe
    assert episodic.episodic
    assert named.episodic
    for x in BATCHES[:3]:
        assert torch.equal(episodic(x), named(x))
    per_image = Stream(gn_net(), "ent", options={**LR, "episode": "image"}, episodic=True)
    assert per_image.learner.recipe.episode == "image"  # the finer choice of the recipe


def test_an_episode_cannot_predict_before_it_learnt() -> None:
    message = "an episode predicts after its update: expected predictions='after'"
    for options, episodic in (({"episode": "image"}, False), ({}, True)):
        with pytest.raises(AcclimateError, match=message):
            Stream(bn_net(), "ent", options=options, episodic=episodic, predictions="before")
    assert Stream(bn_net(), "ent", episodic=True, predictions="after").predictions == "after"


@pytest.mark.parametrize("episode", ["batch", "image"])
def test_a_paused_stream_of_episodes_only_predicts(episode: str) -> None:
    options = {**LR, "episode": episode, "normalization": "mixture"}
    stream = Stream(bn_net(), "ent", options=options)
    learnt = stream(BATCHES[0])
    backwards = stream.learner.backwards
    stream.pause()
    known = Learner(bn_net(), get_recipe("bn-prior")).predict(BATCHES[0])
    torch.testing.assert_close(stream(BATCHES[0]), known)
    assert stream.learner.backwards == backwards
    stream.resume()
    assert torch.equal(stream(BATCHES[0]), learnt)


def test_episodes_move_to_another_precision() -> None:
    stream = Stream(bn_net(), "ent", options=LR, episodic=True)
    stream(BATCHES[0])
    stream.double()
    expected = Stream(bn_net().double(), "ent", options=LR, episodic=True)
    x = BATCHES[1].double()
    torch.testing.assert_close(stream(x), expected(x))
    torch.testing.assert_close(stream(x), expected(x))


def test_a_broken_episode_is_predicted_by_the_source_and_leaves_nothing() -> None:
    stream = Stream(bn_net(), "ent", options=LR, episodic=True)
    broken = BATCHES[0].clone()
    broken[0] = float("nan")
    torch.testing.assert_close(stream(broken)[1:], bn_net()(broken)[1:].detach())
    assert stream.events == []
    assert torch.equal(
        stream(BATCHES[1]), Stream(bn_net(), "ent", options=LR, episodic=True)(BATCHES[1])
    )


def test_batches_of_any_size_down_to_one() -> None:
    stream = Stream(bn_net(), "ent", options=LR)
    assert [len(stream(images(n))) for n in (7, 3, 2)] == [7, 3, 2]
    with pytest.warns(AcclimateWarning, match="a batch of one image has no batch statistics"):
        assert stream(images(1)).shape == (1, 5)
    assert torch.isfinite(stream(images(5))).all()


def test_a_stream_of_single_images_without_batch_statistics() -> None:
    for net, options in [(gn_net(), {}), (bn_net(), {"normalization": "mixture"})]:
        stream = Stream(net, "ent", options={**LR, **options})
        logits = torch.cat(run(stream, list(images(6).split(1))))
        assert torch.isfinite(logits).all()
        assert stream.learner.steps == 6


class Named(NamedTuple):
    logits: Tensor
    extra: str


class Wrapped(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.net, self.form = bn_net(), form

    def forward(self, x: Tensor) -> Any:
        z = self.net(x)
        forms: dict[str, Any] = {
            "tuple": (z, "aux"),
            "list": [z],
            "dict": {"loss": None, "logits": z},
            "object": Named(logits=z, extra=""),
            "nothing": {"loss": z},
            "segments": z[:, :, None, None],
        }
        return forms[self.form]


@pytest.mark.parametrize("form", ["tuple", "list", "dict", "object"])
def test_models_may_return_logits_in_any_usual_form(form: str) -> None:
    ours = run(Stream(Wrapped(form), "ent", options=LR), BATCHES[:2])
    plain = run(Stream(bn_net(), "ent", options=LR), BATCHES[:2])
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("nothing", "returns logits .* got dict"),
        ("segments", r"images × classes, got \(1, 5, 1, 1\)"),
    ],
)
def test_models_that_return_no_logits_are_refused(form: str, message: str) -> None:
    with pytest.raises(AcclimateError, match=message):
        Stream(Wrapped(form), "ent")(BATCHES[0])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "options", [{}, {**ADAM, "normalization": "running"}, {"selector": "all", "optimizer.lr": 1e-3}]
)
def test_it_learns_the_same_when_the_caller_turned_gradients_off(
    mode: Any, options: dict[str, Any]
) -> None:
    expected = run(Stream(bn_net(), "ent", options={**LR, **options}), BATCHES[:3])
    with mode():
        stream = Stream(bn_net(), "ent", options={**LR, **options})
        fresh = [x * 1.0 for x in BATCHES[:3]]  # made in here, as a caller's would be
        inside = run(stream, fresh)
        stream.reset()
    outside = run(stream, BATCHES[:3])
    assert not any(a.requires_grad for a in inside)
    torch.testing.assert_close([a.clone() for a in inside], expected)
    torch.testing.assert_close(outside, expected)


@pytest.mark.parametrize("recipe", ["ent", "hard"])
def test_a_stream_moves_to_another_precision_with_all_it_remembers(recipe: str) -> None:
    options = {**ADAM, "normalization": "running"}
    stream = Stream(bn_net(), recipe, options=options, guard=Guard(check_every=2))
    run(stream, BATCHES[:3])
    stream.double()
    doubles = [x.double() for x in BATCHES[3:]]
    assert {a.dtype for a in run(stream, doubles)} == {torch.float64}
    stream.reset()
    expected = run(Stream(bn_net().double(), recipe, options=options), doubles)
    torch.testing.assert_close(run(stream, doubles), expected)


def test_train_and_eval_leave_the_layers_as_the_recipe_set_them() -> None:
    expected = run(Stream(bn_net(), "ent", options=LR), BATCHES[:2])
    stream = Stream(bn_net(), "ent", options=LR).train()
    torch.testing.assert_close([stream(BATCHES[0]), stream.eval()(BATCHES[1])], expected)


def test_a_model_of_one_class_runs() -> None:
    stream = Stream(bn_net(classes=1), "ent", options=LR, guard=Guard(check_every=2))
    assert all(a.shape == (8, 1) for a in run(stream, BATCHES[:4]))
    assert stream.events == []


def test_temperatures_in_the_collapse_region_are_warned_of() -> None:
    options = {"objective.student_temperature": 0.1}
    with pytest.warns(AcclimateWarning, match="Proposition 1"):
        Stream(bn_net(), "soft", options=options)
    Stream(bn_net(), "soft", options=options, guard="off")


def test_a_transformer_streams() -> None:
    stream = Stream(tiny_vit(), "rpl", options={"selector": "adapters", **LR})
    x = images(4, size=16)
    assert not torch.equal(stream(x), stream(x))


def test_a_model_that_cannot_be_copied_says_how_else() -> None:
    class Stuck(nn.Sequential):
        def __deepcopy__(self, memo: Any) -> Stuck:
            raise RuntimeError("no copies of me")

    net = Stuck(*copy.deepcopy(list(bn_net())))
    with pytest.raises(AcclimateError, match=r"no copies of me\); pass inplace=True"):
        Stream(net, "ent")
    Stream(net, "ent", inplace=True)(BATCHES[0])
