"""Draws: the documented stream, and what a stream has to be like."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from scipy import stats

from acclimate.data.corruptions.draws import LEVELS, Draws, image_keys

KEYS = image_keys(torch.arange(3), seed=7, name="fog", severity=2)


def literal_words(index: int, count: int) -> list[int]:
    """SplitMix64, a number at a time."""

    def mix(word: int) -> int:
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return word ^ (word >> 31)

    base = int.from_bytes(hashlib.blake2b(b"7/fog/2", digest_size=8).digest(), "little")
    key = mix((mix(index) + base) % 2**64)
    return [mix((key + (i + 1) * 0x9E3779B97F4A7C15) % 2**64) for i in range(count)]


def test_the_stream_is_the_documented_one():
    draws = Draws(KEYS)
    # Words are used up in the order of the calls: 3, then 2, then 3.
    uniform, integers, levels = draws.uniform(5), draws.integers(-2, 5, 2), draws.levels(2, 5)
    for index in range(3):
        words = literal_words(index, 8)
        halves = [half for word in words[:3] for half in (word % 2**32, word >> 32)]
        assert uniform[index].tolist() == [(half >> 8) / 2**24 for half in halves[:5]]
        assert integers[index].tolist() == [((w >> 32) * 7 >> 32) - 2 for w in words[3:5]]
        quarters = [word >> shift & 0xFFFF for word in words[5:] for shift in (0, 16, 32, 48)]
        wrapped = [(quarter + 2**15) % 2**16 for quarter in quarters]
        assert levels[index].flatten().tolist() == wrapped[:10]


def test_draws_hang_on_everything_they_should_and_on_nothing_else():
    def first(number=0, *, seed=0, name="fog", severity=1):
        keys = image_keys(torch.tensor([number]), seed=seed, name=name, severity=severity)
        return Draws(keys).uniform(4).tolist()

    others = [first(1), first(seed=1), first(name="snow"), first(severity=2), first(2**40)]
    assert first() not in others
    assert len({str(other) for other in others}) == len(others)
    alone = Draws(KEYS[2:]).normal(3, 5)
    assert torch.equal(alone, Draws(KEYS).normal(3, 5)[2:])


def test_uniform_numbers_are_uniform():
    numbers = Draws(KEYS).uniform(100_000).flatten().numpy()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert stats.kstest(numbers, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.01


def test_normals_are_normal():
    numbers = Draws(KEYS).normal(100_000).flatten().double().numpy()
    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    assert numbers.std() == pytest.approx(1, abs=0.01)
    assert np.abs(numbers).max() < 4.4
    assert stats.kurtosis(numbers) == pytest.approx(0, abs=0.05)


def test_every_integer_and_level_comes_up():
    dice = Draws(KEYS).integers(1, 7, 10_000)
    counts = torch.bincount(dice.flatten(), minlength=7)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:].numpy()).pvalue > 1e-3
    levels = Draws(KEYS).levels(300_000)
    assert int(levels.min()) < 10
    assert int(levels.max()) > LEVELS - 11
    assert int(levels.max()) < LEVELS
