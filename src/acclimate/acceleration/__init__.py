"""Faster steps that give the same answers: memory format and precision, chosen and checked."""

from acclimate.acceleration.applied import EXACT, PLAIN, Acceleration
from acclimate.acceleration.choosing import check_speed, choose
from acclimate.acceleration.fused_norm import interferes
from acclimate.acceleration.recording import Aside, Recorder
from acclimate.acceleration.twin import bypassed, make_twin
from acclimate.acceleration.verifying import differs, turns_away

__all__ = [
    "EXACT",
    "PLAIN",
    "Acceleration",
    "Aside",
    "Recorder",
    "bypassed",
    "check_speed",
    "choose",
    "differs",
    "interferes",
    "make_twin",
    "turns_away",
]
