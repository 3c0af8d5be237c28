"""Faster steps that give the same answers: memory format and precision, chosen and checked."""

from acclimate.acceleration.applied import EXACT, Acceleration
from acclimate.acceleration.choosing import check_speed, choose
from acclimate.acceleration.verifying import differs

__all__ = ["EXACT", "Acceleration", "check_speed", "choose", "differs"]
