"""The hub of Hugging Face, asked once whether it is there before its clients ask many times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from acclimate.models.sources import import_optional

__all__ = ["hub_address", "hub_answers", "kept_offline"]

_SECONDS = 5.0


def hub_address() -> str:
    """Where the hub is: the public one, or what HF_ENDPOINT says."""
    address: str = _hub().constants.ENDPOINT
    return address


def hub_answers() -> bool:
    """Whether the hub can be reached.

    Without a network its own client tries each file six times, half a minute in all. It keeps
    proxies and certificates as the user has set them, so it is that client that asks here, too.
    """
    hub = _hub()
    if hub.constants.HF_HUB_OFFLINE:
        return False
    try:
        hub.utils.get_session().head(hub_address(), timeout=_SECONDS)
    except Exception:  # which ones there are depends on the client's HTTP library
        return False
    return True


@contextmanager
def kept_offline(*, when: bool = True) -> Iterator[None]:
    """Let the hub's client look into its cache alone, for a while.

    ``local_files_only`` is not enough: the client also asks the hub for things of its own.
    """
    constants = _hub().constants
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or when
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _hub() -> Any:
    hub = import_optional("huggingface_hub", extra="hf")
    for module in ("constants", "utils"):  # the package itself loads neither
        import_optional(f"huggingface_hub.{module}", extra="hf")
    return hub
