"""A choice that depends on a clock is made once on a machine."""

from __future__ import annotations

import os
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from acclimate.acceleration.remembered import CACHE, choices_folder, remembered
from acclimate.errors import AcclimateWarning

WHERE = {"model": "net", "threads": 2}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "choices"


def test_the_first_choice_stands_for_the_same_circumstances(cache: Path) -> None:
    assert remembered(WHERE, lambda: {"half": True}) == {"half": True}
    assert remembered(WHERE, lambda: {"half": False}) == {"half": True}
    assert remembered({**WHERE, "threads": 3}, lambda: {"half": False}) == {"half": False}
    assert len(list(cache.iterdir())) == 2


def test_of_those_that_choose_at_once_all_take_the_choice_of_one(cache: Path) -> None:
    at_once = Barrier(16)

    def choose(number: int) -> dict[str, bool]:
        def slowly() -> dict[str, bool]:
            at_once.wait()
            return {f"option{number}": True}

        return dict(remembered(WHERE, slowly))

    with ThreadPoolExecutor(16) as pool:
        chosen = list(pool.map(choose, range(16)))
    assert all(each == chosen[0] for each in chosen)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("content", ["", "[]", '{"chosen": null}', '{"chosen": {"half": 3}}'])
def test_a_damaged_choice_is_made_anew(content: str, cache: Path) -> None:
    remembered(WHERE, lambda: {"half": True})
    (kept,) = cache.iterdir()
    kept.write_text(content)
    for _ in range(2):
        assert remembered(WHERE, lambda: {"half": False}) == {"half": False}
    assert remembered(WHERE, lambda: {"half": True}) == {"half": False}


def test_where_nothing_can_be_kept_it_is_chosen_anew_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.warns(AcclimateWarning, match=rf"cannot be kept in .*set {CACHE} to a folder"):
        assert remembered(WHERE, lambda: {"half": True}) == {"half": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert remembered(WHERE, lambda: {"half": False}) == {"half": False}


def test_the_folder_is_the_users_cache_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert choices_folder() == tmp_path / "acclimate" / "choices"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert choices_folder() == tmp_path / ".cache" / "acclimate" / "choices"


def test_a_user_without_a_home_has_one_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(CACHE)
    monkeypatch.setattr(Path, "expanduser", nobody)  # a user without an entry, as in containers
    assert choices_folder() == Path(tempfile.gettempdir()) / "acclimate" / "choices"


def test_a_disk_without_second_names_keeps_a_choice_too(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refused)
    assert remembered(WHERE, lambda: {"half": True}) == {"half": True}
    assert remembered(WHERE, lambda: {"half": False}) == {"half": True}
    assert len(list(cache.iterdir())) == 1
