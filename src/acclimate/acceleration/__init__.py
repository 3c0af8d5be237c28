"""Faster steps that give the same answers: memory format and precision, chosen and checked."""

from acclimate.acceleration.capture import Aside, Recorder
from acclimate.acceleration.choosing import (
    EXACT,
    PLAIN,
    Acceleration,
    check_speed,
    choose,
    differs,
    turns_away,
)
from acclimate.acceleration.norm import interferes
from acclimate.acceleration.twin import bypassed, make_twin

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
