"""One file per published method; each ends in the recipe that has its name.

Importing this registers them all, and the parts they bring.
"""

from acclimate.methods.adacontrast import ADACONTRAST
from acclimate.methods.conjugate import CONJUGATE
from acclimate.methods.cotta import COTTA
from acclimate.methods.deyo import DEYO
from acclimate.methods.dino import DINO
from acclimate.methods.eata import EATA
from acclimate.methods.eta import ETA
from acclimate.methods.lame import LAME
from acclimate.methods.memo import MEMO
from acclimate.methods.note import NOTE
from acclimate.methods.paper import BN, BN_PRIOR, ENT, HARD, NONE, RPL, RPL_EPOCH, SOFT
from acclimate.methods.rdumb import RDUMB
from acclimate.methods.registry import RECIPES, get_recipe, list_recipes, register_recipe
from acclimate.methods.rotta import ROTTA
from acclimate.methods.sar import SAR
from acclimate.methods.self_ensembling import SELF_ENSEMBLING
from acclimate.methods.shot import SHOT_IM
from acclimate.methods.slr import SLR
from acclimate.methods.t3a import T3A
from acclimate.methods.tent import TENT
from acclimate.methods.ttt import TTT
from acclimate.parts.base import PARTS
from acclimate.recipe import Recipe

__all__ = ["PARTS", "RECIPES", "Recipe", "get_recipe", "list_recipes", "register_recipe"]

for _recipe in (
    NONE,
    BN,
    BN_PRIOR,
    ENT,
    HARD,
    SOFT,
    RPL,
    RPL_EPOCH,
    DINO,
    COTTA,
    SELF_ENSEMBLING,
    ROTTA,
    ADACONTRAST,
    NOTE,
    TENT,
    LAME,
    T3A,
    ETA,
    EATA,
    RDUMB,
    SHOT_IM,
    MEMO,
    SAR,
    TTT,
    DEYO,
    CONJUGATE,
    SLR,
):
    RECIPES.add(_recipe.name, _recipe)
