"""Adapt a classifier to a set of unlabelled images: passes, epochs, resume."""
