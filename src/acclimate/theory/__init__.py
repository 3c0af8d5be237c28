"""The paper's simple model of stability."""

from acclimate.theory.stability import Collapse, will_collapse

__all__ = ["Collapse", "will_collapse"]
