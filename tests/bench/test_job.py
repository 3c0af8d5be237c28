"""Jobs, and the keys results are kept under."""

from __future__ import annotations

import pytest

from acclimate.bench import Job, Weights
from acclimate.errors import AcclimateError
from stored import job


def test_the_key_is_of_the_content():
    assert job().key == job().key
    for change in (
        {"model": "acclimate:digits"},
        {"recipe": "rpl"},
        {"shift": "cifar/fog:4"},
        {"shift": None},
        {"options": {"optimizer.lr": 0.1}},
        {"seed": 1},
        {"images": 100},
        {"split": "train"},
        {"forgetting": True},
    ):
        assert job(**change).key != job().key, change


def test_keys_of_this_version_are_those_of_later_ones():
    # Written down, not computed: whoever changes this loses everybody's results.
    plain = Job(model="m", dataset="d", recipe="ent")
    full = Job(
        model="m",
        dataset="d",
        recipe="ent",
        shift="cifar/fog:3@2",
        options=(("optimizer.lr", 0.001), ("epochs", 2)),
        seed=1,
        images=500,
        weights=Weights(path="anywhere", sha256="00ff"),
        split="train",
        forgetting=True,
    )
    assert plain.to_dict() == {"model": "m", "dataset": "d", "recipe": "ent"}
    assert plain.key == "cae6cba46132b5ca"
    assert full.key == "424d253efe01ce70"


def test_the_order_of_options_and_the_kind_of_number_do_not_matter():
    one = job(options={"optimizer.lr": 1.0, "epochs": 2})
    other = job(options={"epochs": 2, "optimizer.lr": 1})
    assert one == other
    assert one.key == other.key
    assert [name for name, _ in one.options] == ["epochs", "optimizer.lr"]


def test_weights_count_by_content_and_not_by_path(tmp_path):
    for name, content in (("a.pt", b"1"), ("b.pt", b"1"), ("c.pt", b"2")):
        (tmp_path / name).write_bytes(content)
    a, b, c = (job(weights=tmp_path / name) for name in ("a.pt", "b.pt", "c.pt"))
    assert a.key == b.key != c.key
    assert a == b
    assert b.weights.path == str(tmp_path / "b.pt")
    (tmp_path / "a.pt").write_bytes(b"another")
    assert job(weights=tmp_path / "a.pt").key != a.key
    with pytest.raises(AcclimateError, match=r"cannot read the weights file .*gone\.pt"):
        job(weights=tmp_path / "gone.pt")


@pytest.mark.parametrize(
    ("shift", "corruption", "severity", "preset", "group", "draw"),
    [
        ("cifar/fog:3", "fog", 3, "cifar", "test", 0),
        ("imagenet/spatter:5@7", "spatter", 5, "imagenet", "dev", 7),
        ("cifar/frost-procedural:1", "frost-procedural", 1, "cifar", "test", 0),
        ("fog:3", "fog", 3, None, "test", 0),
        ("clipart", "clipart", None, None, None, 0),
        (None, None, None, None, None, 0),
    ],
)
def test_what_a_shift_says(shift, corruption, severity, preset, group, draw):
    made = job(shift=shift)
    assert (made.corruption, made.severity, made.preset) == (corruption, severity, preset)
    assert (made.group, made.draw) == (group, draw)


def test_a_job_is_read_back_from_json(tmp_path):
    (tmp_path / "w.pt").write_bytes(b"1")
    made = job(weights=tmp_path / "w.pt", options={"teacher": "epoch", "epochs": 3}, images=7)
    again = Job.from_dict(made.to_dict())
    assert again == made
    assert again.key == made.key
    (tmp_path / "w.pt").unlink()
    assert Job.from_dict(made.to_dict()).key == made.key


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shift": "cifar/fog:9"}, "expected a severity of 1, 2, 3, 4 or 5"),
        ({"seed": -1}, "expected seed >= 0, got -1"),
        ({"images": 0}, "expected images >= 1, got 0"),
        ({"images": True}, "expected images >= 1, got True"),
        ({"model": ""}, "expected a name as the model"),
        ({"options": {"epochs": float("nan")}}, "epochs: expected a word or a number, got nan"),
        ({"options": {"epochs": [1]}}, "epochs: expected a word or a number"),
    ],
)
def test_mistakes(change, words):
    with pytest.raises(AcclimateError, match=words):
        job(**change)


def test_a_field_nobody_knows_is_refused():
    with pytest.raises(AcclimateError, match="unknown field of a job 'sed'; did you mean 'seed'"):
        Job.from_dict({"model": "m", "dataset": "d", "recipe": "ent", "sed": 1})


@pytest.mark.parametrize("plain", ["é", [], None, 3])
def test_what_is_no_mapping_is_no_job(plain):
    with pytest.raises(AcclimateError, match="expected the fields of a job"):
        Job.from_dict(plain)
