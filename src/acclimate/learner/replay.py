"""Steps that are the same work every time, recorded on a GPU and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from acclimate import parallel
from acclimate.acceleration import Recorder

if TYPE_CHECKING:
    from acclimate.learner.learner import Learner

__all__ = ["Replay"]


class Replay:
    """A learner's step, from a recording where all parts of its recipe are steady."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.forget()

    def forget(self) -> None:
        """Record anew: the tensors are others now."""
        self._recorder: Recorder | None = None
        self._before = 0, 0, 0
        self._each = 0, 0, 0

    def __getstate__(self) -> dict[str, Any]:
        return {"_learner": self._learner}  # a copy makes its own recordings

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.forget()

    def possible(self, images: Tensor) -> bool:
        """Whether a step on these images is the same work every time, and nobody looks on."""
        learner = self._learner
        network = learner.network
        return (
            network.acceleration.recorded
            and images.is_cuda
            and len(images) > 1
            and learner.recipe.learns
            and all(vars(type(part)).get("steady", False) for part in learner.parts.values())
            and not parallel.active()
            and not learner.statistics.gathering
            and not network.looked_into(but=learner.tap)
        )

    def step(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and loss."""
        learner = self._learner
        learner.network.follow()
        if self._recorder is None or self._recorder.aside is not learner.network.aside:
            # The network begins anew in another place when its own tensors are others.
            self._recorder = Recorder(self._work, aside=learner.network.aside)
        self._before = learner.steps, learner.forwards, learner.backwards
        (logits, loss), replayed = self._recorder(images)
        if replayed:  # no Python ran: count for it
            counts = [now + each for now, each in zip(self._before, self._each, strict=True)]
            learner.steps, learner.forwards, learner.backwards = counts
        return logits, loss

    def _work(self, images: Tensor) -> tuple[Tensor, ...]:
        learner = self._learner
        # A recording may fail half way, and the step is then taken again.
        learner.steps, learner.forwards, learner.backwards = self._before
        result = learner.take_step(images)
        assert result.loss is not None
        steps, forwards, backwards = self._before
        self._each = (
            learner.steps - steps,
            learner.forwards - forwards,
            learner.backwards - backwards,
        )
        return result.logits, result.loss
