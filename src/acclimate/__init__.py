"""Let a trained image classifier acclimate to shifted, unlabelled data.

>>> import acclimate
>>> acclimate.get_recipe("rpl").objective
GeneralizedCrossEntropy(q=0.8)

Its packages need no further imports: ``acclimate.models.load``, ``acclimate.data.corrupt``,
``acclimate.parts.Objective``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acclimate._lazy import imported_when_used
from acclimate._version import __version__

if TYPE_CHECKING:
    from acclimate import bench as bench
    from acclimate import callbacks as callbacks
    from acclimate import data as data
    from acclimate import methods as methods
    from acclimate import metrics as metrics
    from acclimate import models as models
    from acclimate import parallel as parallel
    from acclimate import parts as parts
    from acclimate import pretraining as pretraining
    from acclimate import serve as serve
    from acclimate import theory as theory
    from acclimate.adaptation.adapt import adapt as adapt
    from acclimate.adaptation.compare import compare as compare
    from acclimate.data.preprocessing import Preprocessing as Preprocessing
    from acclimate.errors import AcclimateError as AcclimateError
    from acclimate.errors import AcclimateWarning as AcclimateWarning
    from acclimate.exporting import export as export
    from acclimate.guard.drift import drift as drift
    from acclimate.guard.guard import Guard as Guard
    from acclimate.methods import Recipe as Recipe
    from acclimate.methods import get_recipe as get_recipe
    from acclimate.methods import list_recipes as list_recipes
    from acclimate.methods import register_recipe as register_recipe
    from acclimate.result import AdaptationResult as AdaptationResult
    from acclimate.stream import Stream as Stream

_HOME = {
    "AcclimateError": "errors",
    "AcclimateWarning": "errors",
    "AdaptationResult": "result",
    "Guard": "guard",
    "Preprocessing": "data.preprocessing",
    "Recipe": "methods",
    "Stream": "stream",
    "adapt": "adaptation.adapt",
    "compare": "adaptation.compare",
    "drift": "guard.drift",
    "export": "exporting",
    "get_recipe": "methods",
    "list_recipes": "methods",
    "register_recipe": "methods",
}

_PACKAGES = (
    "bench",
    "callbacks",
    "data",
    "methods",
    "metrics",
    "models",
    "parallel",
    "parts",
    "pretraining",
    "serve",
    "theory",
)

__all__ = ["__version__", *_HOME, *_PACKAGES]

__getattr__, __dir__ = imported_when_used(__name__, _HOME, modules=_PACKAGES)
