"""Weights of the networks that acclimate trained for itself; ``acclimate.models`` loads them."""
