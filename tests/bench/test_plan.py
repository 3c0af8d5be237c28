"""Plans become jobs, or a list of all that is wrong with them."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from acclimate.bench import Plan
from acclimate.data.corruptions import DEV, TEST
from acclimate.errors import AcclimateError

MODEL = "acclimate:wrn-40-2-augmix-cifar10"


def plan(**changes):
    return Plan(**{"models": [MODEL], "datasets": ["cifar10"], "recipes": ["ent"], **changes})


def test_every_combination_is_a_job():
    jobs = plan(
        models=[MODEL, "acclimate:digits"],
        shifts=["cifar/fog:3", "cifar/snow:1"],
        recipes=["ent", "rpl"],
        options={"optimizer.lr": [1e-3, 1e-4], "rpl": {"objective.q": [0.7, 0.8, 0.9]}},
        seeds=[0, 1, 2],
    ).jobs()
    assert len(jobs) == 2 * 2 * (2 + 2 * 3) * 3
    assert len({job.key for job in jobs}) == len(jobs)
    assert {len(job.options) for job in jobs if job.recipe == "rpl"} == {2}


def test_jobs_that_share_model_and_shift_are_neighbours():
    wanted = plan(
        models=[MODEL, "acclimate:digits"],
        shifts=["cifar/fog", "cifar/snow:1"],
        recipes=["ent", "rpl"],
        seeds=[0, 1],
    )
    places = [(job.model, job.shift) for job in wanted.jobs()]
    changes = sum(a != b for a, b in pairwise(places))
    assert changes == len(set(places)) - 1
    assert wanted.jobs() == wanted.jobs()


def test_words_for_shifts_are_those_of_evaluate():
    def shifts(dataset, *words):
        return [job.shift for job in plan(datasets=[dataset], shifts=words).jobs()]

    assert shifts("cifar10") == [None]
    assert shifts("cifar10", "clean", "cifar/fog:3@2") == [None, "cifar/fog:3@2"]
    assert shifts("cifar10-c", "fog:3", "fog") == ["fog:3", "fog:1", "fog:2", "fog:4", "fog:5"]
    assert shifts("cifar10-c", "dev:1") == [f"{name}:1" for name in DEV]
    assert len(shifts("cifar10-c")) == 5 * len(TEST)
    assert len(shifts("cifar10", "imagenet/all:1", "cifar/fog:1")) == len(DEV) + len(TEST) + 1
    assert "clipart" in shifts("imagenet-d")


def test_each_data_set_may_have_its_own_shifts():
    jobs = plan(
        datasets=["cifar10", "cifar10-c"],
        shifts={"cifar10": ["cifar/fog:3"], "cifar10-c": ["fog:3"]},
    ).jobs()
    assert [(job.dataset, job.shift) for job in jobs] == [
        ("cifar10", "cifar/fog:3"),
        ("cifar10-c", "fog:3"),
    ]


def test_nothing_is_run_twice():
    twice = plan(
        models=[MODEL, MODEL],
        recipes=["ent", "ent"],
        options={"optimizer.lr": [1e-3, "1e-3", "0.001"]},
        seeds=[0, 0],
        split="test",
    ).jobs()
    assert [job.options for job in twice] == [(("optimizer.lr", 0.001),)]
    assert twice == plan(options={"optimizer.lr": 0.001}).jobs()


def test_a_stream_is_met_once_whatever_number_of_epochs():
    asked = {"options": {"epochs": [1, 5]}, "recipes": ["ent"], "shifts": ["cifar/fog:5"]}
    assert len(plan(**asked).jobs()) == 2
    (job,) = plan(**asked, settings=["online"]).jobs()
    assert "epochs" not in dict(job.options)
    # One that begins anew with each image takes so many steps with it.
    assert len(plan(**{**asked, "recipes": ["memo"]}, settings=["online"]).jobs()) == 2


def test_the_model_as_it_is_has_neither_seeds_nor_options():
    jobs = plan(
        recipes=["none", "bn", "ent"],
        options={"optimizer.lr": [1e-3, 1e-4]},
        seeds=[3, 4],
        forgetting=True,
    ).jobs()
    unadapted = [job for job in jobs if job.recipe == "none"]
    assert [(job.seed, job.options, job.forgetting) for job in unadapted] == [(0, (), False)]
    assert [job.options for job in jobs if job.recipe == "bn"] == [(), ()]
    assert sum(job.recipe == "ent" for job in jobs) == 4


def test_where_data_lies_changes_no_key(tmp_path):
    here, there = plan(roots={"cifar10": str(tmp_path)}), plan()
    assert [job.key for job in here.jobs()] == [job.key for job in there.jobs()]
    assert here.root("cifar10") == tmp_path
    with pytest.raises(AcclimateError, match="cifar10 needs a root"):
        there.root("cifar10")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"recipes": ["rlp"]}, "unknown recipe 'rlp'; did you mean 'rpl'"),
        ({"datasets": ["cifar-10"]}, "unknown data set 'cifar-10'; did you mean 'cifar10'"),
        ({"models": ["acclimate:wrn-40"]}, "unknown model 'acclimate:wrn-40'; did you mean"),
        ({"models": ["wrn"]}, "expected a model with a prefix"),
        ({"models": ["tim:resnet50"]}, "unknown model prefix 'tim'; did you mean 'timm'"),
        ({"shifts": ["cifar/fogg:3"]}, "unknown corruption 'fogg'; did you mean 'fog'"),
        ({"shifts": ["fog:3"]}, "with the preset it is made by"),
        (
            {"options": {"optimizer.rate": 1}},
            "recipe ent: unknown option of optimizer 'sgd' 'rate'",
        ),
        ({"options": {"optimizer.lr": ["fast"]}}, "recipe ent: optimizer.lr: expected float"),
        ({"options": {"epochs": []}}, "epochs: expected a value or a list of values"),
        (
            {"options": {"rpl": {"epochs": 1}}},
            "options for the recipe 'rpl', which the plan has not",
        ),
        ({"recipes": ["none"], "options": {"none": {"epochs": 1}}}, "takes no options"),
        ({"options": {"ent": 3}}, "ent: expected options of the recipe, got 3"),
        ({"seeds": [-1]}, "expected seeds >= 0, got -1"),
        ({"seeds": [2**70]}, "expected seed < 2"),
        ({"seeds": []}, "at least one of seeds"),
        ({"images": 0}, "expected images >= 1, got 0"),
        ({"split": "tets"}, "unknown split of cifar10 'tets'; did you mean 'test'"),
        ({"roots": {"cifar10": "/nowhere"}}, "expected cifar10 in /nowhere, but nothing is there"),
        ({"weights": {MODEL: "/gone.pt"}}, "cannot read the weights file /gone.pt"),
        ({"datasets": ["cifar10-c"], "shifts": ["clean"]}, "cifar10-c has no clean images"),
    ],
)
def test_mistakes_show_before_anything_runs(change, words):
    with pytest.raises(AcclimateError, match=words):
        plan(**change).jobs()


def test_all_mistakes_are_told_at_once():
    with pytest.raises(AcclimateError) as told:
        plan(recipes=["rlp", "ent"], datasets=["cifar"], options={"objective.q": [1, 2]}).jobs()
    for words in ("3 things are wrong", "'rlp'", "'cifar'", "below its name"):
        assert words in str(told.value)


def test_ten_thousand_jobs_in_two_seconds():
    wanted = plan(
        shifts=["cifar/all"], recipes=["ent"], options={"optimizer.lr": [1, 2, 3]}, seeds=range(36)
    )
    started = time.perf_counter()
    jobs = wanted.jobs()
    assert len(jobs) == 19 * 5 * 3 * 36
    assert time.perf_counter() - started < 10  # generous: machines that run tests are busy


YAML = """
model: acclimate:wrn-40-2-augmix-cifar10
dataset: [cifar10]
root: {root}
shift: [cifar/dev:5, clean]
recipe: [none, ent]
set:
  optimizer.lr: [1e-3, 1e-4]
  ent: {{epochs: 2}}
seed: [0, 1]
images: 500
forgetting: true
"""


def test_a_file_has_the_names_of_the_command_line(tmp_path):
    (tmp_path / "plan.yaml").write_text(YAML.format(root=tmp_path))
    read = Plan.from_yaml(tmp_path / "plan.yaml")
    assert read.roots == {"cifar10": str(tmp_path)}
    jobs = read.jobs()
    assert len(jobs) == 5 * (1 + 2 * 2)
    assert jobs[1].options == (("epochs", 2), ("optimizer.lr", 0.001))
    assert jobs[1].images == 500


def test_the_names_of_the_fields_will_do_too(tmp_path):
    (tmp_path / "plan.yaml").write_text("models: [acclimate:digits]\ndatasets: [mnist]\n")
    assert len(Plan.from_yaml(tmp_path / "plan.yaml").jobs()) == 1
    words = "model: acclimate:digits\ndataset: mnist\nimages-per-shift: 32\n"
    (tmp_path / "plan.yaml").write_text(words)
    assert Plan.from_yaml(tmp_path / "plan.yaml").images == 32


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: m\ndataset: d\nrecipes: ent\nrecipe: rpl", ["expected recipe once"]),
        ("modl: m\nsead: 3", ["did you mean 'model'", "did you mean 'seed'", "expected dataset:"]),
        ("model: [m, n]\ndataset: a\nweights: /w.pt", ["a path for each model (m, n)"]),
        ("model: m\ndataset: [a, b]\nroot: [x, y]", ["root: expected a name, got ['x', 'y']"]),
        ("model: m\ndataset: d\nseed: one", ["seed: expected a whole number, got 'one'"]),
        ("model: m\ndataset: d\nforgetting: 3", ["forgetting: expected true or false"]),
        ("model: m\ndataset: d\nset: 3", ["set: expected options such as"]),
        ("model: m\ndataset: d\nset: {1: 3}", ["set: expected a name, got 1"]),
        ("model: m\ndataset: d\nsplit: [test, train]", ["split: expected a name, got ['test'"]),
        ("model: [m", ["is not YAML"]),
        ("- model", ["expected a plan with lines such as"]),
        ("", ["expected a plan with lines such as"]),
    ],
)
def test_mistakes_in_a_file(tmp_path, text, words):
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(AcclimateError) as told:
        Plan.from_yaml(tmp_path / "plan.yaml")
    for each in words:
        assert each in str(told.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(AcclimateError, match="cannot read"):
        Plan.from_yaml(tmp_path / "plan.yaml")
    with pytest.raises(AcclimateError, match="cannot read"):
        Plan.from_yaml(tmp_path)


def test_a_network_without_weights_is_refused(tmp_path):
    plan = {"models": ["acclimate:wrn-40-2"], "datasets": ["cifar10"], "recipes": ["none"]}
    with pytest.raises(AcclimateError, match=r"without weights.*wrn-40-2-augmix-cifar10"):
        Plan(**plan).jobs()
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"weights")
    assert Plan(**plan, weights={"acclimate:wrn-40-2": str(file)}).jobs()


def test_every_wrong_shift_is_told():
    with pytest.raises(AcclimateError) as told:
        plan(shifts=["cifar/fogg", "cifar/snow:7", "cifar/snow:3"]).jobs()
    assert "fogg" in str(told.value)
    assert "7" in str(told.value)


def test_how_a_plan_is_run_is_no_part_of_it(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text(f"model: {MODEL}\ndataset: cifar10\nscore: end\n")
    with pytest.raises(AcclimateError, match="expected --score on the command line"):
        Plan.from_yaml(file)
