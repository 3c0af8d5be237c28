"""How source models are made: one training loop, and methods that say what it minimises."""

from acclimate.pretraining.examples import Examples, load_examples
from acclimate.pretraining.methods import METHODS, AugMix, Method, Vanilla
from acclimate.pretraining.schedule import learning_rate
from acclimate.pretraining.training import Plan, Trained, pretrain

__all__ = [
    "METHODS",
    "AugMix",
    "Examples",
    "Method",
    "Plan",
    "Trained",
    "Vanilla",
    "learning_rate",
    "load_examples",
    "pretrain",
]
