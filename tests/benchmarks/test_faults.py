"""The matrix of faults: what is compared, and what counts as lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import disturbing
import faults
from acclimate.bench import Store
from disturbing import FAULTS, End, contents, finished
from faults import Row, markdown
from stored import result

FINE = {"hit": True, "clear": True, "same": True, "pieces": 2, "lost": 0, "ends": []}


def row(command: str = "bench", fault: str = "kill", seed: int = 0, **changes: object) -> Row:
    return Row(**{"command": command, "fault": fault, "seed": seed, **FINE, **changes})


def test_what_a_clock_measured_is_not_compared_and_all_else_is(tmp_path: Path) -> None:
    found = []
    for seconds, error in ((1.0, 20.0), (2.0, 20.0), (1.0, 21.0)):
        folder = tmp_path / f"{seconds} {error}"
        folder.mkdir()
        (folder / "summary.json").write_text(json.dumps({"seconds": seconds, "error": error}))
        Store(folder / "a.db").add(result(error=error, record={"seconds": seconds}))
        found.append(contents(folder))
    assert found[0] == found[1]
    assert {name for name in found[0] if found[0][name] != found[2][name]} == {
        "a.db", "summary.json",
    }  # fmt: skip


def test_a_file_that_is_half_written_is_seen(tmp_path: Path) -> None:
    (tmp_path / ".model.safetensors.partial").touch()
    assert list(contents(tmp_path)) == [".model.safetensors.partial"]


def test_a_result_that_was_made_anew_is_another(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    store.add(result())
    before = finished(tmp_path)
    assert list(before) == [result().key]
    assert finished(tmp_path) == before
    (tmp_path / "a.db").unlink()
    assert finished(tmp_path) == {}


@pytest.mark.parametrize(
    ("end", "clear"),
    [
        (End(-9, "half a li"), True),
        (End(0, ""), True),
        (End(2, "acclimate: could not write"), True),
        (End(2, ""), False),
        (End(1, "Traceback (most recent call last)"), False),
        (End(None, ""), False),
    ],
)
def test_an_end_is_clear_that_says_why(end: End, clear: bool) -> None:
    assert end.clear == clear


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write to anything")
def test_a_process_of_root_obeys_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    child = os.fork()
    if child == 0:
        disturbing.obey_permissions()
        try:
            (tmp_path / "a").touch()
        except PermissionError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    (tmp_path / "b").touch()


def test_the_table_counts_by_fault_and_command() -> None:
    rows = [row(), row(seed=1, same=False), row("adapt", "full disk", clear=False, lost=1)]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in markdown(rows).splitlines()[2:]
    ]
    assert lines == [
        ["kill", "`bench`", "2", "2", "1", "4", "0", "0"],
        ["full disk", "`adapt`", "1", "1", "1", "2", "1", "1"],
        ["all", "", "3", "3", "2", "6", "1", "1"],
    ]


def test_the_stored_cases_are_many_and_all_good() -> None:
    rows = [Row(**each) for each in json.loads(faults.RESULTS.read_text(encoding="utf-8"))]
    assert len(rows) >= 200
    assert {each.fault for each in rows} == {*FAULTS, faults.LOST_NODE}
    assert [each for each in rows if not each.good] == []
