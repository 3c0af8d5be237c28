"""How source models are made: one training loop, and methods that define its loss."""

from acclimate.pretraining.augmix import AugMix
from acclimate.pretraining.dann import Dann
from acclimate.pretraining.data import Case, Examples, load_examples, open_case
from acclimate.pretraining.dino import Dino
from acclimate.pretraining.ensembling import SelfEnsembling
from acclimate.pretraining.methods import METHODS, Method, Vanilla
from acclimate.pretraining.plan import Plan
from acclimate.pretraining.stepping import learning_rate
from acclimate.pretraining.training import Trained, pretrain
from acclimate.pretraining.ttt import Ttt
from acclimate.pretraining.uda_ss import UdaSs

__all__ = [
    "METHODS",
    "AugMix",
    "Case",
    "Dann",
    "Dino",
    "Examples",
    "Method",
    "Plan",
    "SelfEnsembling",
    "Trained",
    "Ttt",
    "UdaSs",
    "Vanilla",
    "learning_rate",
    "load_examples",
    "open_case",
    "pretrain",
]
