"""One file per published method; each ends in the recipe that has its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from acclimate.methods.rdumb import RDUMB
from acclimate.methods.rotta import ROTTA
from acclimate.methods.sar import SAR
from acclimate.methods.self_ensembling import SELF_ENSEMBLING
from acclimate.methods.shot import SHOT_IM
from acclimate.methods.slr import SLR
from acclimate.methods.t3a import T3A
from acclimate.methods.tent import TENT
from acclimate.methods.ttt import TTT

if TYPE_CHECKING:
    from acclimate.recipe import Recipe

__all__ = ["METHODS"]

METHODS: tuple[Recipe, ...] = (
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
)
"""In the order in which they are listed."""
