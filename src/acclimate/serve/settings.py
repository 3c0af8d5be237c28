"""What a server is allowed: how it batches, how it learns, and what a client may send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from acclimate.errors import AcclimateError, unknown_name

__all__ = ["Mode", "Settings"]

Mode = Literal["frozen", "shadow", "live"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a server answers and learns, and its limits.

    Attributes:
        mode: "live" answers with the adapted model; "shadow" adapts beside, answers with the source
            model and reports what would change; "frozen" never learns.
        batch_size: images answered at once, at most (a single larger request is not cut).
        wait_ms: how long the first image of a batch waits for others.
        queue: images that may wait; more are refused.
        learn_batch: images of a learning step; None is the recipe's own batch size.
        learn_share: share of the time that the learner may work; images that come while it rests
            are answered, and only some of them learnt from.
        client_share: share of a learning step's images that one client may give.
        every: learning steps from version to version.
        keep: versions that are kept, besides the source model's.
        max_drift: how far the learning parameters may move, as a share of their norm, before the
            guard goes back.
        max_body: bytes of a request.
        max_pixels: pixels of an image, as it is sent.
        max_images: images of a request.
        max_buffered: bytes of all requests that are being read at one time.
        body_seconds: how long a client may take to send a request.
    """

    mode: Mode = "live"
    batch_size: int = 16
    wait_ms: float = 5.0
    queue: int = 256
    learn_batch: int | None = None
    learn_share: float = 0.25
    client_share: float = 1.0
    every: int = 10
    keep: int = 20
    max_drift: float = 0.15
    max_body: int = 16 * 2**20
    max_pixels: int = 25_000_000
    max_images: int = 64
    max_buffered: int = 256 * 2**20
    body_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise unknown_name("mode", str(self.mode), get_args(Mode))
        for name in (
            *("batch_size", "queue", "every", "keep"),
            *("max_body", "max_pixels", "max_images", "max_buffered"),
        ):
            if getattr(self, name) < 1:
                raise AcclimateError(f"expected {name} >= 1, got {getattr(self, name)}")
        if self.learn_batch is not None and self.learn_batch < 2:
            raise AcclimateError(f"expected learn_batch >= 2, got {self.learn_batch}")
        for name in ("learn_share", "client_share"):
            if not 0 < getattr(self, name) <= 1:
                raise AcclimateError(f"expected 0 < {name} <= 1, got {getattr(self, name):g}")
        if not 0 <= self.wait_ms <= 10_000:
            raise AcclimateError(f"expected wait_ms from 0 to 10,000, got {self.wait_ms:g}")
        for name in ("max_drift", "body_seconds"):
            if not getattr(self, name) > 0:
                raise AcclimateError(f"expected {name} > 0, got {getattr(self, name):g}")
        if self.max_images > self.queue:
            raise AcclimateError(
                f"expected a queue of at least max_images ({self.max_images}), got {self.queue}"
            )
