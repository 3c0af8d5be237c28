"""A callback for Lightning: the model adapts while ``Trainer.test`` or ``predict`` runs.

Needs ``pip install 'acclimate[lightning]'``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from torch import nn

from acclimate.errors import AcclimateError
from acclimate.models.libraries import import_optional, import_torchvision
from acclimate.stream import Stream

__all__ = ["AdaptAtTest"]

if find_spec("torchvision"):  # which Lightning imports, by way of torchmetrics
    import_torchvision()
lightning: Any = import_optional("lightning", extra="lightning")


class AdaptAtTest(lightning.Callback):  # type: ignore[misc]
    """Puts a :class:`acclimate.Stream` in the place of the network for the time of a test.

    ``network`` names the attribute of the LightningModule that holds the classifier; ``recipe`` and
    ``options`` are those of `Stream`. Afterwards the module has its own network back, unchanged;
    ``stream`` is what predicted, with its ``events`` and its adapted ``model``.

    >>> callback = AdaptAtTest("tent", network="net")
    >>> callback.stream is None
    True
    """

    def __init__(self, recipe: str = "ent", *, network: str = "model", **options: Any) -> None:
        self.recipe, self.network, self.options = recipe, network, options
        self.stream: Stream | None = None
        self._own: nn.Module | None = None

    def _begin(self, module: Any) -> None:
        own = getattr(module, self.network, None)
        if not isinstance(own, nn.Module):
            children = ", ".join(name for name, _ in module.named_children()) or "none"
            raise AcclimateError(
                f"expected network= to name the classifier of {type(module).__name__} (it has: "
                f"{children}), got {self.network!r}"
            )
        self._own, self.stream = own, Stream(own, self.recipe, **self.options)
        setattr(module, self.network, self.stream)

    def _end(self, module: Any) -> None:
        if self._own is not None:
            setattr(module, self.network, self._own)
            self._own = None

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self._begin(pl_module)

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self._end(pl_module)

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self._begin(pl_module)

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self._end(pl_module)

    def on_exception(
        self,
        trainer: Any,
        pl_module: Any,
        exception: BaseException,
    ) -> None:
        """Called by Lightning."""
        self._end(pl_module)
