"""Tables: what is averaged, in which order, and what is missing."""

from __future__ import annotations

from statistics import fmean, stdev

import pytest

from acclimate.bench import Result, Store, conditions, corruption_table, pivot
from acclimate.bench.table import needed
from acclimate.data.corruptions import DEV, TEST
from acclimate.errors import AcclimateError
from acclimate.metrics import mce
from stored import MODEL, job, result


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.db")


def show(store, *, value="error", rows=("recipe",), columns=()):
    frame = store.select(needed(value, [*rows, *columns]))
    return pivot(frame, rows=rows, columns=columns, value=value)


def errors(corruptions, severities=range(1, 6)):
    """Different everywhere, so that a wrong order of means shows."""
    return {
        (name, severity): 3.0 * place + severity**2
        for place, name in enumerate(corruptions)
        for severity in severities
    }


def fill(store, cells, *, preset="cifar/", **changes):
    store.add_all(
        result(error=error, shift=f"{preset}{name}:{severity}", **changes)
        for (name, severity), error in cells.items()
    )


def test_hold_out_corruptions_at_one_severity_are_whole_beside_others_at_another(store):
    fill(store, errors(DEV, [5]))
    fill(store, errors(["fog"], [3]))
    found = show(store, rows=("group",))
    assert found.cell(("dev",)).missing == ""
    assert found.cell(("test",)).missing == "1 of 15"


def test_the_mean_over_corruptions_of_the_mean_over_severities(store):
    cells = errors(TEST)
    del cells["fog", 5]
    fill(store, cells)
    cell = show(store).cell(("ent",))
    means = [fmean(v for (n, _), v in cells.items() if n == name) for name in TEST]
    assert cell.value == pytest.approx(fmean(means))
    assert cell.value != pytest.approx(fmean(cells.values()))
    assert cell.missing == "74 of 75 parts"
    assert not cell.complete
    assert cell.images == 7400


def test_a_mean_over_too_few_corruptions_says_so(store):
    fill(store, errors(TEST[:12]))
    assert str(show(store).cell(("ent",))).endswith("(12 of 15)")
    fill(store, errors(TEST))
    cell = show(store).cell(("ent",))
    assert cell.complete
    assert "of" not in str(cell)


def test_one_severity_alone_is_whole(store):
    fill(store, errors(TEST, [5]))
    table = show(store)
    assert table.cell(("ent",)).complete
    assert table.severities == (5,)


def test_spread_is_over_seeds(store):
    for seed in (0, 1, 2):
        fill(store, {cell: e + seed for cell, e in errors(DEV).items()}, seed=seed)
    cell = show(store).cell(("ent",))
    base = fmean(errors(DEV).values())
    assert cell.value == pytest.approx(base + 1)
    assert cell.std == pytest.approx(stdev([base, base + 1, base + 2]))
    assert (cell.seeds, cell.parts, cell.expected_parts) == (3, 60, 60)


def test_a_seed_that_lacks_something_is_left_out_and_that_is_said(store):
    fill(store, errors(DEV), seed=0)
    fill(store, dict.fromkeys(errors(DEV[:3]), 99.0), seed=1)
    fill(store, {cell: e + 2 for cell, e in errors(DEV).items()}, seed=2)
    cell = show(store).cell(("ent",))
    assert cell.value == pytest.approx(fmean(errors(DEV).values()) + 1)
    assert (cell.missing, cell.complete) == ("2 of 3 seeds", False)
    assert (cell.seeds, cell.all_seeds, cell.parts, cell.expected_parts) == (2, 3, 40, 40)


def test_of_seeds_that_all_lack_something_those_on_the_most_count(store):
    fill(store, errors(DEV[:3]), seed=0)
    fill(store, dict.fromkeys(errors(DEV[1:], [5]), 99.0), seed=1)
    cell = show(store).cell(("ent",))
    assert cell.value == pytest.approx(fmean(errors(DEV[:3]).values()))
    assert cell.missing == "3 of 4, 1 of 2 seeds"


def test_nothing_else_is_averaged_over(store):
    fill(store, {("fog", 3): 10.0}, options={"optimizer.lr": 0.1})
    fill(store, {("fog", 3): 20.0}, options={"optimizer.lr": 0.2})
    fill(store, {("fog", 3): 30.0}, recipe="bn")
    table = show(store)
    assert table.rows == ("recipe", "options")
    assert table.row_keys == [
        ("bn", "{}"),
        ("ent", '{"optimizer.lr":0.1}'),
        ("ent", '{"optimizer.lr":0.2}'),
    ]
    assert table.constant["dataset"] == "cifar10"
    by_option = show(store, rows=["recipe"], columns=["options.optimizer.lr"])
    assert by_option.rows == ("recipe",)
    assert by_option.column_keys == [(None,), (0.1,), (0.2,)]
    assert by_option.cell(("ent",), (0.2,)).value == 20.0


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("images", {"images": 50}),
        ("dataset", {"dataset": "stl10"}),
        ("draw", {"shift": "cifar/fog:3@4"}),
        ("preset", {"shift": "imagenet/fog:3"}),
        ("group", {"shift": "cifar/spatter:3"}),
        ("model", {"model": "acclimate:digits"}),
    ],
)
def test_what_differs_becomes_a_row(store, name, change):
    store.add_all([result(), result(**change)])
    assert show(store).rows == ("recipe", name)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("dataset", {"dataset": "stl10"}),
        ("split", {"dataset": "cifar10", "split": "train"}),
        ("setting", {"setting": "online"}),
        ("options", {"options": {"optimizer.lr": 0.1}}),
        ("group", {"shift": "cifar/spatter:3"}),
        ("images", {"images": 50}),
    ],
)
def test_what_differs_between_rows_is_told_too(store, name, change):
    other = {"model": "acclimate:digits", "recipe": "rpl"}
    store.add_all([result(), result(**other, **change)])
    table = show(store, rows=["model", "recipe"])
    assert table.rows == ("model", "recipe", name)
    assert name not in table.constant


def test_what_is_plain_from_another_name_is_not_told_again(store):
    store.add_all([result(), result(dataset="imagenet-c", shift="fog:3")])
    assert show(store).rows == ("recipe", "dataset")  # the preset goes with it
    assert show(store, columns=["dataset"]).rows == ("recipe",)


def test_what_goes_with_a_column_stands_in_its_head(store):
    rate = {"optimizer.lr": 0.1}
    store.add_all(
        result(model=model, recipe=recipe, options=options)
        for model in ("a", "b")
        for recipe, options in (("none", {}), ("ent", rate), ("rpl", rate))
    )
    table = show(store, rows=["model"], columns=["recipe"])
    assert (table.rows, table.columns) == (("model",), ("recipe", "options"))
    assert table.column_keys == [
        ("ent", '{"optimizer.lr":0.1}'), ("none", "{}"), ("rpl", '{"optimizer.lr":0.1}'),
    ]  # fmt: skip
    assert len(table.cells) == 6


def test_corruptions_stand_in_the_order_of_the_paper(store):
    fill(store, errors([*DEV, *TEST[::-1]]))
    frame = store.select(needed("error"))
    table = corruption_table(frame, rows=["recipe"])
    names = [name.removesuffix("-procedural") for (name,) in table.column_keys]
    assert names == [*TEST, *DEV, "mean dev", "mean test"]
    own = [table.cell(("ent",), (name,)).value for (name,) in table.column_keys[: len(TEST)]]
    assert table.cell(("ent",), ("mean test",)).value == pytest.approx(fmean(own))


def test_a_mean_over_corruptions_is_of_one_setting(store):
    fill(store, {("fog", 5): 10.0, ("snow", 5): 20.0}, setting="online")
    store.add(result(error=90.0, shift="cifar/test:5", setting="continual"))
    table = corruption_table(store.select(needed("error")), rows=["recipe"])
    assert table.rows == ("recipe", "setting")
    assert table.cell(("ent", "online"), ("mean test",)).value == 15.0
    assert table.cell(("ent", "continual"), ("mean test",)).value == 90.0


def by_corruption(store, value):
    frame = store.select(needed(value, ["recipe", "corruption"]))
    return corruption_table(frame, rows=["recipe"], value=value)


def test_a_stream_has_the_errors_of_the_shifts_it_met(store):
    fill(store, {(name, 5): 10.0 for name in DEV}, setting="online")
    met = {name: [10.0 * place, 10.0 * place + 2] for place, name in enumerate(DEV)}
    stream = {"shift": "cifar/dev:5", "setting": "continual"}
    store.add(result(error=16.0, record={"by_shift": met, "labelled": 400}, **stream))
    for value in ("error", "online"):
        table = by_corruption(store, value)
        assert table.column_keys == [*((name,) for name in DEV), ("mean dev",)]
        shown = [table.cell(("ent", "continual"), (name,)) for name in DEV]
        assert [cell.value for cell in shown] == [1.0, 11.0, 21.0, 31.0]
        assert [cell.images for cell in shown] == [100] * 4
        mean = table.cell(("ent", "continual"), ("mean dev",))
        assert (mean.value, mean.complete, mean.images) == (16.0, True, 400)


def test_what_a_stream_has_for_all_shifts_alone_stays_so(store):
    stream = {"shift": "cifar/dev:5", "setting": "mixed"}
    store.add(result(record={"by_shift": {name: [10.0] for name in DEV}}, **stream))
    assert by_corruption(store, "seconds").column_keys == [("dev",), ("mean dev",)]
    assert by_corruption(store, "seconds").cell(("ent",), ("dev",)).value == 2.5
    store.add(Result.failed(job(**stream, seed=1), "no"))
    assert by_corruption(store, "error").cell(("ent",), ("dev",)).failed == 1


def test_the_mce_is_that_of_the_metric_and_only_where_complete(store):
    cells = errors(TEST)
    fill(store, cells, preset="", dataset="imagenet-c")
    fill(store, errors(TEST), preset="", dataset="cifar10-c")
    expected = mce({name: [cells[name, s] for s in range(1, 6)] for name in TEST}).value
    fill(store, errors(TEST[:14]), preset="", dataset="imagenet-c", recipe="rpl")
    table = show(store, value="mce", rows=["recipe", "dataset"])
    assert table.cell(("ent", "imagenet-c")).value == pytest.approx(expected)
    assert table.cell(("ent", "cifar10-c")).value is None
    assert str(table.cell(("rpl", "imagenet-c"))) == "- (14 of 15)"
    with pytest.raises(AcclimateError, match="a mean over all corruptions and severities"):
        show(store, value="mce", columns=["severity"])


def test_domains_are_counted_by_their_data_set(store):
    store.add_all(result(dataset="imagenet-d", shift=name) for name in ("clipart", "sketch"))
    assert str(show(store).cell(("ent",))) == "20.0 (2 of 6)"
    store.add(result(shift=None, recipe="bn"))
    assert str(show(store, rows=["recipe", "dataset"]).cell(("bn", "cifar10"))) == "20.0"


def test_failed_results_are_counted_and_enter_no_mean(store):
    store.add_all([result(), Result.failed(job(seed=1), "no")])
    table = show(store)
    assert table.failed == 1
    assert str(table.cell(("ent",))) == "20.0 (1 of 15) [1 failed]"


def test_values_by_name(store):
    store.add(result(error=20.0))
    for value, number in {"online": 21.0, "unadapted": 25.0, "ece": 0.1, "seconds": 2.5}.items():
        assert show(store, value=value).cell(("ent",)).value == number
    with pytest.raises(AcclimateError, match="unknown value 'eror'; did you mean 'error'"):
        show(store, value="eror")
    with pytest.raises(AcclimateError, match="unknown row or column 'modle'"):
        show(store, rows=["modle"])


def test_memory_is_in_mebibytes(store):
    store.add(result(record={"memory": 300 * 2**20}))
    table = show(store, value="memory")
    assert (table.cell(("ent",)).value, table.unit) == (300.0, "MiB")


def test_forgetting_is_by_how_much_the_error_on_clean_images_rose(store):
    lost = {"before": 5.0, "after": 7.5, "images": 40}
    store.add_all([result(forgetting=True, record={"forgetting": lost}), result(recipe="bn")])
    table = show(store, value="forgetting")
    assert table.cell(("ent",)).value == 2.5
    assert table.cell(("ent",)).images == 40
    assert table.cell(("bn",)).value is None


def test_nothing_gives_an_empty_table(store):
    assert show(store).row_keys == []
    assert show(store, rows=["model"]).cell((MODEL,)).value is None


def test_options_are_sorted_by_their_numbers(store):
    for epochs in (10, 1, 5):
        store.add(result(recipe="rpl", options={"epochs": epochs}))
    frame = store.select(needed("error"), conditions(["recipe=rpl", "options.epochs=*"]))
    found = [key[-1] for key in pivot(frame, rows=["recipe", "options"]).row_keys]
    assert found == ['{"epochs":1}', '{"epochs":5}', '{"epochs":10}']


def frosty(recipe, kind):
    """Results of frost and fog; ``kind`` is what results call the frost."""
    return [
        result(
            error=error, shift=f"cifar/{name}:{severity}", recipe=recipe,
            record={"corruption": kind if name == "frost" else None},
        )
        for (name, severity), error in errors(["frost", "fog"]).items()
    ]  # fmt: skip


def test_means_over_the_two_kinds_of_frost_are_told_apart(store):
    store.add_all([*frosty("ent", "frost"), *frosty("rpl", "frost-procedural")])
    shown = show(store)
    assert shown.rows == ("recipe", "frost")
    assert shown.row_keys == [("ent", "frost"), ("rpl", "frost-procedural")]
    frame = store.select(needed("error", ["recipe", "corruption"]))
    by_corruption = corruption_table(frame, rows=("recipe",))
    assert by_corruption.rows == ("recipe", "frost")
    assert [key for (key,) in by_corruption.column_keys][-1] == "mean test"
    # Where corruptions have columns of their own and there is no mean, nothing is mixed.
    assert show(store, columns=("corruption",)).rows == ("recipe",)


def test_one_kind_of_frost_needs_no_row(store):
    store.add_all([*frosty("ent", "frost-procedural"), *frosty("rpl", "frost-procedural")])
    assert show(store).rows == ("recipe",)
