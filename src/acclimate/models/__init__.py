"""Models from timm, torchvision, transformers, this package or the user's own code.

>>> from acclimate import models
>>> models.list_models("acclimate:d*")
['acclimate:digits'...]
"""

from acclimate.data.labels import imagenet_classes
from acclimate.models.builtin import register_builtin, want_trained
from acclimate.models.filling import fill
from acclimate.models.layers import norm_layers
from acclimate.models.loading import as_loaded, list_models, load
from acclimate.models.record import LoadedModel
from acclimate.models.source_hf import preprocessing_from_hf
from acclimate.models.source_timm import preprocessing_of
from acclimate.models.weights import load_weights

__all__ = [
    "LoadedModel",
    "as_loaded",
    "fill",
    "imagenet_classes",
    "list_models",
    "load",
    "load_weights",
    "norm_layers",
    "preprocessing_from_hf",
    "preprocessing_of",
    "register_builtin",
    "want_trained",
]
