"""What many draws of a corruption have in common, and whether two sets of them do."""

from __future__ import annotations

import numpy as np


def radial_spectra(differences: np.ndarray) -> np.ndarray:
    """Mean power of N×H×W×C pictures in ten rings of spatial frequency, N×10."""
    power = (np.abs(np.fft.fft2(differences, axes=(1, 2))) ** 2).mean(axis=3)
    frequencies = [np.fft.fftfreq(side) for side in power.shape[1:]]
    ring = (np.hypot(frequencies[0][:, None], frequencies[1]) * 20).astype(int)
    return np.stack([power[:, ring == i].mean(axis=1) for i in range(10)], axis=1)


def assert_same_mean(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Over the draws, the first axis: within four standard errors of the difference."""
    error = np.sqrt((ours.var(axis=0, ddof=1) + theirs.var(axis=0, ddof=1)) / len(ours))
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) <= 4 * error).all()
