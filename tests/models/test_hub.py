"""Without a network the hub is asked once, and what was downloaded before is used."""

from __future__ import annotations

import importlib.util
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from safetensors.torch import save_file

from acclimate.errors import AcclimateError
from acclimate.models import load
from acclimate.models.libraries import hub_answers, import_torchvision, kept_offline
from acclimate.models.loading import outline

if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("timm") is None:
    pytest.skip("needs transformers and timm", allow_module_level=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts somebody wanted to reach, all in vain."""
    hosts: list[str] = []

    def nowhere(host: Any, *_: Any, **__: Any) -> NoReturn:
        hosts.append(str(host))
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    return hosts


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a machine that was not set to stay offline."""
    import huggingface_hub.constants

    # Newer clients ask the hub for a list of their own, once in a process: each test is to see it.
    if asks := sys.modules.get("huggingface_hub.utils._detect_agent"):
        monkeypatch.setattr(asks, "_registry", None)
    monkeypatch.setattr(
        huggingface_hub.constants, "AGENT_HARNESSES_PATH", str(tmp_path / "agents"), raising=False
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return tmp_path


def downloaded(cache: Path, name: str) -> Path:
    """Where the hub's client keeps the files of a repository that it fetched before."""
    repository, commit = cache / f"models--{name.replace('/', '--')}", "a" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text(commit)
    (repository / "snapshots" / commit).mkdir(parents=True)
    return repository / "snapshots" / commit


def test_transformers_is_kept_from_asking_again(cache: Path, asked: list[str]) -> None:
    with pytest.raises(AcclimateError, match=r"the hub does not answer.*run: hf download a/b"):
        load("hf:a/b")
    assert len(asked) == 1


def test_an_outline_asks_nobody(cache: Path, asked: list[str]) -> None:
    with pytest.raises(AcclimateError, match=r"nothing is downloaded for this.*hf:FOLDER"):
        outline("hf:a/b")
    assert asked == []


def test_timm_is_kept_from_asking_again(cache: Path, asked: list[str]) -> None:
    with pytest.raises(AcclimateError, match=r"timm's weights test_resnet.*--weights FILE"):
        load("timm:test_resnet")
    assert len(asked) == 1


def test_what_timm_fetched_before_is_used(cache: Path, asked: list[str]) -> None:
    import_torchvision()
    import timm

    source = timm.create_model("test_resnet")
    folder = downloaded(cache, timm.get_pretrained_cfg("test_resnet").hf_hub_id)
    save_file(source.state_dict(), folder / "model.safetensors")
    loaded = load("timm:test_resnet")
    assert loaded.model.get_parameter("conv1.0.weight").equal(source.conv1[0].weight)


def test_offline_is_only_for_a_while(cache: Path) -> None:
    import huggingface_hub

    constants = huggingface_hub.constants
    seen = []
    with suppress(OSError), kept_offline():
        seen.append(constants.HF_HUB_OFFLINE)
        raise OSError
    assert seen == [True]
    assert not constants.HF_HUB_OFFLINE
    with kept_offline(when=False):
        assert not constants.HF_HUB_OFFLINE


def test_a_user_who_said_offline_is_taken_at_their_word(
    cache: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert not hub_answers()
    assert asked == []


def test_any_answer_means_that_it_is_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        def head(self, address: str, *, timeout: float) -> int:
            return 404

    monkeypatch.setattr("huggingface_hub.utils.get_session", Session)
    assert hub_answers()
