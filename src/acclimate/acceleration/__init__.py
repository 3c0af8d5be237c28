"""Faster steps that give the same predictions: memory format and precision, chosen and checked."""

from acclimate.acceleration.capture import GraphedWork, GraphMemory
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
    "GraphMemory",
    "GraphedWork",
    "bypassed",
    "check_speed",
    "choose",
    "differs",
    "interferes",
    "make_twin",
    "turns_away",
]
