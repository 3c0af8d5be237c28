"""The one step that runs any recipe."""

from acclimate.learner.learner import DEFAULT_LR, Learner, StepResult

__all__ = ["DEFAULT_LR", "Learner", "StepResult"]
