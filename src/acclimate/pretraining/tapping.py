"""Features on their way into the classifier."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["Tap"]


class Tap:
    """What the classifier was fed in the last forward pass; nothing where nobody asked.

    >>> import torch
    >>> layer = nn.Linear(4, 2)
    >>> tap = Tap(layer)
    >>> tap.features(layer(torch.zeros(3, 4))).shape
    torch.Size([3, 4])
    """

    def __init__(self, classifier: nn.Module | None) -> None:
        self._fed: Tensor | None = None
        self._hook = (
            None if classifier is None else classifier.register_forward_pre_hook(self._keep)
        )

    def _keep(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._fed = inputs[0].flatten(1)

    def features(self, logits: Tensor) -> Tensor:
        """N × features; N × 0 where they are not tapped."""
        return logits[:, :0] if self._fed is None else self._fed

    def remove(self) -> None:
        """Leave the model as it was."""
        self._fed = None
        if self._hook is not None:
            self._hook.remove()
