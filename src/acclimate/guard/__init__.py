"""What is watched while a model learns, and the verdict on what it became."""

from acclimate.guard.guard import Guard

__all__ = ["Guard"]
