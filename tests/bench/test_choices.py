"""The choice file, and jobs with what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from acclimate.bench import Job
from acclimate.bench.choices import chosen_jobs, read_choices
from acclimate.errors import AcclimateError
from searches import search_job


def written(tmp_path, content):
    path = tmp_path / "choice.json"
    path.write_text(json.dumps(content))
    return read_choices(path)


def a_plain_job(**changes):
    return Job.of(**{"model": "m", "dataset": "cifar10", "recipe": "ent", **changes})


def test_jobs_get_the_options_of_their_model_and_recipe(tmp_path):
    entry = {"options": {"optimizer.lr": 1e-2, "epochs": 3}, "dev_error": 9.0, "selection": "dev"}
    choices = written(tmp_path, {"m": {"ent": entry, "rpl": {"options": {"epochs": 2}}}})
    ent, rpl, none, bn = chosen_jobs(
        [a_plain_job(recipe=recipe) for recipe in ("ent", "rpl", "none", "bn")], choices
    )
    assert dict(ent.options) == {"optimizer.lr": 1e-2, "epochs": 3}
    assert dict(rpl.options) == {"epochs": 2}
    assert none.options == bn.options == ()  # nothing was to choose for them
    assert choices.marks == []


def test_what_a_job_says_itself_wins(tmp_path):
    choices = written(tmp_path, {"m": {"ent": {"options": {"optimizer.lr": 1e-2, "epochs": 3}}}})
    (job,) = chosen_jobs([search_job(1e-4, None, epochs=1)], choices)
    assert dict(job.options) == {"optimizer.lr": 1e-4, "epochs": 1}


def test_a_choice_for_each_shift(tmp_path):
    by_shift = {f"imagenet-d {name}": {"options": {"epochs": n}} for n, name in
                enumerate(("real", "sketch"), start=1)}  # fmt: skip
    entry = {"by_shift": by_shift, "selection": "leave-one-out: …"}
    choices = written(tmp_path, {"m": {"ent": entry}})
    jobs = [a_plain_job(dataset="imagenet-d", shift=name) for name in ("real", "sketch")]
    assert [dict(job.options) for job in chosen_jobs(jobs, choices)] == [
        {"epochs": 1},
        {"epochs": 2},
    ]
    assert choices.marks == ["leave-one-out: …"]
    with pytest.raises(AcclimateError, match="none for imagenet-d clipart"):
        chosen_jobs([a_plain_job(dataset="imagenet-d", shift="clipart")], choices)


def test_a_stream_is_met_once_whatever_epochs_were_chosen(tmp_path):
    stream = a_plain_job(shift="cifar/fog:1", setting="online")
    for epochs in (2, 5):
        entry = {"options": {"optimizer.lr": 1e-2, "epochs": epochs}}
        (job,) = chosen_jobs([stream], written(tmp_path, {"m": {"ent": entry, "memo": entry}}))
        assert dict(job.options) == {"optimizer.lr": 1e-2}
    again = replace(stream, recipe="memo")  # which takes so many steps with each image
    (job,) = chosen_jobs([again], written(tmp_path, {"m": {"memo": entry}}))
    assert dict(job.options) == {"optimizer.lr": 1e-2, "epochs": 5}


def test_several_files_are_one(tmp_path):
    files = [tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.json"]
    for file, model, rate in zip(files, "abb", (1e-2, 1e-3, 1e-4), strict=True):
        file.write_text(json.dumps({model: {"ent": {"options": {"optimizer.lr": rate}}}}))
    choices = read_choices(files[0], files[1], files[1])
    jobs = chosen_jobs([a_plain_job(model="a"), a_plain_job(model="b")], choices)
    assert [dict(job.options) for job in jobs] == [{"optimizer.lr": 1e-2}, {"optimizer.lr": 1e-3}]
    with pytest.raises(AcclimateError, match=r"b\.json and .*c\.json .* different options of ent"):
        read_choices(*files)
    same = {"b": {"ent": {"options": {"optimizer.lr": 1e-3}, "selection": "oracle: …"}}}
    files[2].write_text(json.dumps(same))  # chosen otherwise, and the same in the end
    assert dict(read_choices(*files).find("b", "ent").options) == {"optimizer.lr": 1e-3}


def test_short_forms_and_patterns(tmp_path):
    choices = written(
        tmp_path,
        {"ent": {"epochs": 1}, "timm:*": {"ent": {"epochs": 2}}, "timm:a": {"ent": {"epochs": 3}}},
    )
    found = [choices.find(model, "ent").options for model in ("py:x", "timm:b", "timm:a")]
    assert found == [{"epochs": 1}, {"epochs": 2}, {"epochs": 3}]
    assert choices.find("py:x", "rpl") is None


def test_mistakes_are_said_before_anything_runs(tmp_path):
    with pytest.raises(AcclimateError, match=r"has no choice for rpl with m; tune it too"):
        chosen_jobs([a_plain_job(recipe="rpl")], written(tmp_path, {"m": {"ent": {"epochs": 1}}}))
    with pytest.raises(AcclimateError, match="lrr"):
        written(tmp_path, {"m": {"ent": {"options": {"optimizer.lrr": 1}}}})
    with pytest.raises(AcclimateError, match=r"expected .*MODEL.* got 3"):
        written(tmp_path, {"m": 3})
    with pytest.raises(AcclimateError, match="cannot read"):
        read_choices(tmp_path / "nowhere.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(AcclimateError, match="expected JSON"):
        read_choices(tmp_path / "broken.json")


def test_a_number_in_quotes_is_the_number(tmp_path):
    (tmp_path / "choice.json").write_text('{"ent": {"optimizer.lr": "1e-3", "epochs": "2"}}')
    options = read_choices(tmp_path / "choice.json").find("m", "ent").options
    assert options == {"optimizer.lr": 0.001, "epochs": 2}
