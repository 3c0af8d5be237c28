"""Files that anyone may have written: JSON, YAML and text are read with limits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from acclimate.bench import Store
from acclimate.bench.choices import read_choices
from acclimate.bench.plan import read_plan
from acclimate.errors import AcclimateError
from acclimate.reading import LARGEST_YAML, parse_json, read_object, read_text, read_yaml

DEEP = {"list": "[" * 100_000, "closed": "[" * 5000 + "]" * 5000, "mapping": '{"a": ' * 100_000}
LAUGHS = "\n".join(
    ["a0: &a0 [ha, ha]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
)
CHAIN = "\n".join(["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 300)])


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_deeply_nested_files_are_refused_with_a_clear_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text(text)
    for read in (read_choices, read_plan, Store(tmp_path / "results.db").merge):
        with pytest.raises(AcclimateError, match=r"deep\.json.*(more than 100 deep|Expecting)"):
            read(file)


def test_what_people_write_is_not_too_deep() -> None:
    assert parse_json("[" * 100 + "]" * 100, "a") != []
    with pytest.raises(
        AcclimateError, match=r"expected JSON in a, got lists .* more than 100 deep"
    ):
        parse_json("[" * 102 + "]" * 102, "a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, r"more than 100,000 values \(aliases written out\)"),
        (CHAIN, "more than 100 deep"),
        ("a: &a [*a]", "an alias that refers to what it is a part of"),
        ("a: " + "9" * 5000, "is not YAML: a number of more than 400 characters"),
        ("images: 0x" + "f" * 5000, "is not YAML: a number of more than 400 characters"),
        ("a: 1" + ":59" * 300_000, "is not YAML: a number of more than 400 characters"),
        ("a: 2020-99-99", "is not YAML: month"),
        ("!!python/object/apply:os.system [exit 5]", "is not YAML: could not determine"),
        ("#" * (LARGEST_YAML + 1), "expected at most 1,048,576 bytes, got more"),
    ],
)
def test_a_hostile_plan_is_refused_quickly(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    began = time.perf_counter()
    with pytest.raises(AcclimateError, match=rf"plan\.yaml.*{reason}"):
        read_plan(file)
    assert time.perf_counter() - began < 5


def test_aliases_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("a: &a [1, 2]\nb: *a\nc: &c {x: 1}\nd: {<<: *c, y: 2}\n")
    assert read_yaml(file) == {"a": [1, 2], "b": [1, 2], "c": {"x": 1}, "d": {"x": 1, "y": 2}}


@pytest.mark.parametrize("text", ["[]", "null", "3", '"run"', "{}"])
def test_an_object_is_one_and_has_its_keys(text: str, tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    file.write_text(text)
    with pytest.raises(AcclimateError, match=r"expected .* in .*summary\.json, got .*damaged"):
        read_object(file, "run")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_endless_files_and_other_text_end_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(AcclimateError, match="expected at most 1,000 bytes, got more"):
        read_text(Path("/dev/zero"), largest=1000)
    (tmp_path / "a").write_bytes(b"\xff\xfe")
    with pytest.raises(AcclimateError, match="is not UTF-8 text; check --plan"):
        read_text(tmp_path / "a", hint="; check --plan")
    (tmp_path / "b").write_bytes(os.linesep.encode() + b"\r\n\r")
    assert read_text(tmp_path / "b").endswith("\r\n\r")
