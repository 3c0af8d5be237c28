"""The checklist of the paper's best practices: what passes, what does not, and what it says."""

from __future__ import annotations

from dataclasses import replace

from acclimate.bench import Weights
from acclimate.data.corruptions import DEV
from acclimate.report.practices import practices
from acclimate.report.settings import panels
from report_store import CHOSEN, RATES, full_store, result, sweep
from stored import change


def states(results):
    return {each.name: each for each in practices(panels(results))}


def test_the_checklist_passes_what_was_done(tmp_path):
    store = full_store(tmp_path / "sweep.db")
    checked = practices(panels(store.results()))
    assert [each.state for each in checked] == ["passed"] * 6
    assert "optimizer.lr=0.001" in checked[0].evidence
    assert "augmix" in checked[2].evidence


def test_the_checklist_finds_a_setting_chosen_on_the_test_corruptions():
    checked = states(sweep(grid=[{"optimizer.lr": 1e-3}, {"optimizer.lr": 1e-4}], seeds=(0,)))
    one = checked["Hyper-parameters chosen on hold-out corruptions"]
    assert one.state == "not passed"
    assert "2 settings on what is reported" in one.evidence


def test_the_checklist_finds_a_report_of_another_setting_than_the_chosen():
    held_out = sweep(corruptions=DEV, seeds=(0,), grid=RATES)
    test = sweep(seeds=(0,), grid=[CHOSEN | {"optimizer.lr": 1e-4}])
    one = states([*held_out, *test])["Hyper-parameters chosen on hold-out corruptions"]
    assert one.state == "not passed"
    assert "is not among those run" in one.evidence


def test_the_checklist_finds_what_is_missing():
    checked = states(sweep(models=["acclimate:wrn-40-2"], recipes=["ent"], seeds=(0,)))
    assert {name: each.state for name, each in checked.items()} == {
        "Hyper-parameters chosen on hold-out corruptions": "cannot tell",
        "Simple baselines beside it": "not passed",
        "Robust source models among the models": "not passed",
        "Epochs searched": "not passed",
        "Learning rate searched": "not passed",
        "Adapted parameters searched": "not passed",
    }
    assert "no bn" in checked["Simple baselines beside it"].evidence
    assert "only norm-affine" in checked["Adapted parameters searched"].evidence


def test_a_run_of_several_epochs_is_no_search_for_their_number():
    plain, asked = ({"optimizer.lr": 1e-3}, {"optimizer.lr": 1e-3, "epochs": 3})
    runs = {"recipes": ["ent"], "seeds": (0,)}

    def state(option):
        test, held_out = sweep(**runs, grid=[option]), sweep(**runs, grid=[option], corruptions=DEV)
        return states([*test, *held_out])["Epochs searched"].state

    assert (state(plain), state(asked)) == ("not passed", "passed")


def test_nothing_is_said_of_a_search_before_anything_is_reported():
    held_out = states(sweep(corruptions=DEV, recipes=["ent"], seeds=(0,), grid=RATES))
    for name in ("Epochs searched", "Learning rate searched", "Adapted parameters searched"):
        assert held_out[name].state == "cannot tell"


def test_baselines_are_asked_for_where_something_is_reported():
    chosen = sweep(corruptions=DEV, recipes=["ent"], seeds=(0,))
    name = "Simple baselines beside it"
    assert states([*chosen, *sweep(seeds=(0,))])[name].state == "passed"
    assert states(chosen)[name].state == "not passed"
    clean = result(model="m", dataset="cifar10", recipe="none", images=1000)
    assert states([*chosen, clean])[name].state == "not passed"  # what learns is all that counts


def test_a_model_without_statistics_needs_no_bn_beside_it():
    found = sweep(recipes=["none", "ent"], seeds=(0,))
    name = "Simple baselines beside it"
    assert states(found)[name].state == "not passed"
    for each in found:
        change(each, errors={"start": each.unadapted_error})
    now = states(found)[name]
    assert (now.state, "bn where it changes anything" in now.evidence) == (
        "passed",
        True,
    )


def test_equal_errors_do_not_mean_that_there_are_no_statistics():
    found = sweep(recipes=["none", "ent"], seeds=(0,))
    for each in found:
        change(each, errors={"start": each.unadapted_error}, batch_norm_layers=25)
    assert states(found)["Simple baselines beside it"].state == "not passed"


def test_a_robust_model_is_known_by_a_word_of_its_name():
    name = "Robust source models among the models"

    def state(model, weights=None):
        found = sweep(models=[model], corruptions=["fog"], severities=(5,), seeds=(0,))
        file = None if weights is None else Weights(path=weights, sha256="00")
        return states([replace(r, job=replace(r.job, weights=file)) for r in found])[name].state

    assert state("acclimate:wrn-28-10", "/data/cuda/plain.safetensors") == "not passed"
    assert state("acclimate:wrn-28-10", "/data/wrn_augmix.safetensors") == "passed"
    assert state("timm:tf_efficientnet_l2.ns_jft_in1k") == "passed"
    assert state("timm:resnext101_32x8d.fb_swsl_ig1b_ft_in1k") == "passed"
    assert state("timm:resnet50.a1_in1k") == "not passed"
    assert state("acclimate:wrn-26-2-uda-ss-mnist-m") == "passed"
