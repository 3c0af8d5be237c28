"""Paths as people type them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acclimate.cli import main
from acclimate.errors import AcclimateError
from acclimate.text import user_path


def test_a_home_is_found_and_nothing_there_is_no_error(monkeypatch):
    monkeypatch.setenv("HOME", "/nowhere")
    assert user_path("~/photos") == Path("/nowhere/photos")


@pytest.mark.parametrize("word", ["~nobody-of-this-name/x", "a" * 300, "a\0b"])
def test_what_the_system_cannot_look_at_is_refused(word):
    with pytest.raises(AcclimateError, match=r"cannot use the path .*; check it"):
        user_path(word)


def test_a_link_to_itself_is_refused(tmp_path):
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(AcclimateError, match="symbolic links; check it"):
        user_path(tmp_path / "loop")


@pytest.mark.parametrize("word", ["~nobody-of-this-name/x", "a" * 300])
@pytest.mark.parametrize(
    "command",
    [
        ["adapt", "--model", "acclimate:digits", "--images"],
        ["results"],
        ["report", "--out", "page.html"],
        ["bench", "--store", "new.db", "--plan"],
        ["export", "--out", "net.safetensors"],
    ],
    ids=lambda words: words[0],
)
def test_commands_refuse_it(command, word, capfd):
    assert main([*command, word]) == 2
    assert "acclimate: " in capfd.readouterr().err
