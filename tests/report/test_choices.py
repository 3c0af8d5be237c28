"""What a report says of choice files: the search, the choice, its regret, and the checklist."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from acclimate.bench import Job, Result, Store
from acclimate.bench.choices import read_choices
from acclimate.bench.selection import LABEL_FREE, LEAVE_ONE_OUT, ORACLE, place_of
from acclimate.data.corruptions import DEV
from acclimate.errors import AcclimateError
from acclimate.report.choices import by_shift_table, choices_table, regret_table
from acclimate.report.page import build_report
from acclimate.report.practices import practices
from acclimate.report.settings import choose, panels
from report_store import section, sweep

MODEL = "acclimate:wrn-40-2"
CHOSEN, OTHER = {"optimizer.lr": 1e-3, "epochs": 3}, {"optimizer.lr": 1e-4, "epochs": 3}
ON_DEV = [f"cifar10 cifar/{name}:5" for name in DEV]
SEARCHED = {"optimizer.lr": [1e-3, 1e-4], "epochs": [1, 2, 3], "selector": ["affine", "all"]}
ENTRY = {
    "options": CHOSEN, "dev_error": 20.25, "chosen_on": ON_DEV, "candidates": 12,
    "selection": "dev", "searched": SEARCHED, "seeds": [0], "images_per_shift": 1000,
}  # fmt: skip


def reported(*grid, **words):
    words = {"models": [MODEL], "recipes": ["none", "bn", "ent"], "seeds": (0,), **words}
    return sweep(grid=grid, severities=(5,), **words)


@pytest.fixture
def written(tmp_path):
    """A choice file for the recipe ent, read."""

    def write(name="choice.json", **changes):
        entry = {k: v for k, v in {**ENTRY, **changes}.items() if v is not None}
        path = tmp_path / name
        path.write_text(json.dumps({MODEL: {"ent": entry}}))
        return read_choices(path)

    return write


def checked(results, *choices):
    selection, _, _, *searched = practices(panels(results), choices)
    return selection, [each.state for each in searched], searched


def label_free(results, *, error, labelled):
    """The changes of an entry for a choice without labels on the images of results."""
    places = list(dict.fromkeys(place_of(r.job).words for r in results if r.job.recipe == "ent"))
    by_shift = {p: {"options": OTHER, "error": 30.0, "chosen_on": [p], "candidates": 3}
                for p in places}  # fmt: skip
    return {
        "options": None, "dev_error": None, "chosen_on": None, "by_shift": by_shift,
        "error": error, "regret": error - labelled, "selection": LABEL_FREE,
        "labelled": {"options": CHOSEN, "error": labelled},
    }  # fmt: skip


def test_what_was_searched_chosen_and_on_what(written):
    table = choices_table([written()], [(MODEL, "ent")])
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert row["chosen"] == "optimizer.lr=0.001, epochs=3"
    assert row["how"] == "dev"
    assert row["chosen on"].startswith("4 shifts: cifar10 cifar/speckle_noise, cifar10 cifar/")
    assert row["searched"] == (
        "optimizer.lr: 0.001, 0.0001; epochs: 1, 2, 3; selector: affine, all"
    )
    assert (row["error %"].value, row["candidates"].text, row["file"]) == (
        20.25, "12", "choice.json",
    )  # fmt: skip
    assert not any("Without results" in note for note in table.notes)
    assert "ent of acclimate:wrn-40-2" in choices_table([written()], [("m", "ent")]).notes[-1]


def test_an_oracle_is_marked(written):
    oracle = written(selection=ORACLE, dev_error=None, test_error=9.0)
    assert "oracle: chosen on the test data" in choices_table([oracle]).rows[0]


def test_the_checklist_goes_by_the_file(written):
    # The store alone has one setting on test corruptions, and no search.
    selection, states, searched = checked(reported(CHOSEN), written())
    assert (selection.state, states) == ("passed", ["passed"] * 3)
    assert "chosen on 4 hold-out shifts, from 12 candidates (choice.json)" in selection.evidence
    assert "2 choices of parameters (affine, all), says choice.json" in searched[2].evidence
    selection, states, _ = checked(reported(CHOSEN))
    assert (selection.state, states) == ("cannot tell", ["not passed"] * 3)


def test_the_file_is_believed_where_the_store_has_more(written):
    few = written(searched={"optimizer.lr": [1e-3], "epochs": [3]})
    _, states, searched = checked(reported(CHOSEN, OTHER), few)
    assert states == ["not passed"] * 3
    assert "only 0.001, says choice.json" in searched[1].evidence
    assert "only the recipe's own" in searched[2].evidence


def test_a_file_that_does_not_say_leaves_it_to_the_store(written):
    searched = reported(CHOSEN, OTHER, corruptions=DEV)
    _, states, _ = checked([*searched, *reported(CHOSEN)], written(searched=None))
    assert states == ["passed", "passed", "not passed"]


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({"selection": ORACLE}, "not passed", "oracle: chosen on the test data (choice.json)"),
        ({"options": OTHER}, "not passed", "not run for all that is reported"),
        ({"selection": ""}, "cannot tell", "does not say how that was chosen"),
        ({"selection": LEAVE_ONE_OUT}, "passed", "leave-one-out"),
    ],
)
def test_a_choice_that_is_none_on_hold_out_corruptions(written, changes, state, said):
    selection, _, _ = checked(reported(CHOSEN), written(**changes))
    assert selection.state == state
    assert said in selection.evidence


def test_the_choice_has_to_be_run_on_everything_that_is_reported(written):
    other = [replace(r, job=replace(r.job, dataset="cifar100")) for r in reported(OTHER)]
    selection, _, _ = checked([*reported(CHOSEN), *other], written())
    assert selection.state == "not passed"
    assert "not run for all that is reported" in selection.evidence


def test_a_choice_without_labels_is_told_from_one_on_hold_out_corruptions(written):
    results = reported(OTHER, corruptions=["fog", "snow"])
    free = written(**label_free(results, error=31.0, labelled=30.0))
    selection, _, _ = checked(results, free)
    assert selection.state == "not passed"
    assert "label-free" in selection.evidence
    assert "though without labels" in selection.evidence


def test_the_setting_that_was_chosen_stands_for_its_recipe(written):
    found = panels(reported(CHOSEN, OTHER))
    (panel,) = found
    picked = {each.setting.recipe: each for each in choose(panel, found)}
    assert "not chosen on hold-out" in picked["ent"].why
    named = {e.setting.recipe: e for e in choose(panel, found, choices=[written(options=OTHER)])}
    assert dict(named["ent"].setting.options) == OTHER
    assert named["ent"].why == "the one of choice.json (dev)"


def test_the_regret_against_the_choice_on_hold_out_corruptions_is_of_the_runs_in_the_store(written):
    results = reported({**CHOSEN, "epochs": 6}, corruptions=["fog", "snow"])
    free = written("free.json", **label_free(results, error=31.0, labelled=29.0))
    table = regret_table([written(), free], results)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    after = [r.after_epoch(3) for r in results if r.job.recipe == "ent"]
    assert len(after) == 2
    assert rows[0]["against"] == "the choice on hold-out corruptions (choice.json)"
    assert rows[0]["error %"].value == pytest.approx(sum(after) / 2)
    assert rows[0]["regret, points"].value == pytest.approx(31.0 - sum(after) / 2)
    assert rows[1]["against"] == "one choice by the labels of the same shifts (oracle)"
    assert rows[1]["regret, points"].text == "+2.00"


def test_a_regret_is_not_made_up_from_fewer_runs(written):
    results = reported(CHOSEN, corruptions=["fog", "snow"])
    free = written("free.json", **label_free(results, error=31.0, labelled=29.0))
    some = [r for r in results if r.corruption == "fog"]
    for lacking in (some, [replace(r, job=replace(r.job, seed=1)) for r in results]):
        table = regret_table([written(), free], lacking)
        assert table.rows[0][-2:] == ["–", "–"]
        assert "lacks runs" in table.notes[-1]


def test_on_the_same_hold_out_corruptions_the_regret_is_of_the_files(written):
    held_out = reported(CHOSEN, corruptions=DEV)
    free = written("free.json", **label_free(held_out, error=21.0, labelled=20.25))
    (row,) = regret_table([written(), free], []).rows
    assert (row[5], row[-1].text) == ("the choice on hold-out corruptions (choice.json)", "+0.75")
    (alone,) = regret_table([free], []).rows
    assert alone[5] == "one choice by the labels of the same shifts"
    assert regret_table([written()], held_out) is None
    assert len(by_shift_table([free]).rows) == len(DEV)


def test_the_page_has_a_part_for_files_and_none_without(tmp_path, written):
    store = Store(tmp_path / "sweep.db")
    store.add_all(reported(CHOSEN))
    plain, told = build_report(store), build_report(store, choices=[written()])
    names = [section.name for section in plain.sections]
    assert "choice" not in names
    assert [s.name for s in told.sections if s.name not in names] == ["choice"]
    assert told.facts == [*plain.facts, "options chosen in choice.json"]
    assert [t.name for t in told.whole] == [*(t.name for t in plain.whole), "choices"]


def test_an_entry_that_cannot_be_read(written):
    with pytest.raises(AcclimateError, match=r"as acclimate tune writes it in .*choice\.json"):
        written(seeds="zero")


def test_epochs_that_were_not_scored_were_not_searched():
    def state(results):
        found = practices(panels(results), ())
        return next(each.state for each in found if each.name == "Epochs searched")

    held_out, shown = reported(CHOSEN, corruptions=DEV), reported(CHOSEN)
    unscored = [replace(r, record=replace(r.record, score="end")) for r in held_out]
    assert state([*held_out, *shown]) == "passed"
    assert state([*unscored, *shown]) == "not passed"
    # A run that is reported has shorter ones in it, but nothing was chosen by them.
    assert state(shown) == "not passed"


def test_options_chosen_for_each_shift_are_one_row(written, tmp_path):
    results = reported(CHOSEN, OTHER, corruptions=["fog", "snow"])
    shared = label_free(results, error=31.0, labelled=30.0)
    shared["by_shift"]["cifar10 cifar/fog:5"]["options"] = CHOSEN
    # Each shift ran with one of them alone, as `bench --choice` has it.
    wanted = {"fog": CHOSEN, "snow": OTHER}
    kept = [
        r for r in results if r.job.recipe != "ent" or dict(r.job.options) == wanted[r.corruption]
    ]
    for chosen_from in (results, kept):
        store = Store(tmp_path / f"{len(chosen_from)}.db")
        store.add_all(chosen_from)
        report = build_report(store, choices=[written("free.json", **shared)])
        (table,) = section(report, "results").tables
        row = next(r for r in table.rows if r[table.header.index("recipe")] == "ent")
        found = dict(zip(table.header, row, strict=True))
        errors = [r.error for r in kept if r.job.recipe == "ent"]
        assert found["options"] == "chosen=free.json"
        assert found["after %"].value == pytest.approx(sum(errors) / 2)
        assert found["coverage"] == "2 of 15"
        assert any("what free.json has for each shift" in note for note in table.notes)


def test_options_chosen_for_each_domain_stand_beside_what_the_domains_share(written, tmp_path):
    def on(domain, recipe, error, options=()):
        job = Job.of(
            model=MODEL, dataset="imagenet-d", shift=domain, recipe=recipe, options=dict(options)
        )
        return Result(job=job, record={"errors": {"final": error}, "labelled": 10})

    domains = {"real": {"epochs": 1}, "clipart": {"epochs": 2}, "sketch": {"epochs": 1}}
    results = [on(name, "bn", 50.0) for name in domains]
    results += [
        on(n, "ent", 10.0 * epochs, {"epochs": epochs}) for n in domains for epochs in (1, 2)
    ]
    by_shift = {f"imagenet-d {name}": {"options": options} for name, options in domains.items()}
    left_out = {"options": None, "by_shift": by_shift, "selection": LEAVE_ONE_OUT}
    files = [written("loo.json", **left_out)]
    files.append(written("oracle.json", options={"epochs": 2}, selection=ORACLE))
    store = Store(tmp_path / "domains.db")
    store.add_all(results)
    (table,) = section(build_report(store, choices=files), "results").tables
    bn, ent = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert ent["options"] == "chosen=loo.json"  # an oracle comes last
    assert ent["after %"].value == pytest.approx(40 / 3)
    assert (ent["BN %"].text, ent["coverage"]) == ("50.0", bn["coverage"])
