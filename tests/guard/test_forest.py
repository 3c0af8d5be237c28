"""A forest asks the same questions as the one it was made of."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

import estimates
from acclimate.guard.estimate import fitted, level_from
from acclimate.guard.forest import Forest
from estimates import Example, grown

NAMES = ("stays", "used", "images", "distance")


def drawn(count: int) -> list[Example]:
    draw = np.random.default_rng(0)
    rows = draw.random((count, len(NAMES)))
    return [
        Example(
            model="net",
            case=number,
            shift="fog",
            signs=dict(zip(NAMES, row.tolist(), strict=True)),
            truth=float(row[0] * row[1]),
        )
        for number, row in enumerate(rows)
    ]


def test_it_predicts_what_scikit_learn_predicts(monkeypatch):
    examples = drawn(300)
    trees = {}

    class Kept(ExtraTreesRegressor):
        def fit(self, *args, **options):
            trees["kept"] = super().fit(*args, **options)
            return self

    monkeypatch.setattr(estimates, "ExtraTreesRegressor", Kept)
    forest = grown("level", examples)
    x = np.array([[e.signs[name] for name in NAMES] for e in examples], dtype=np.float32)
    expected = np.stack([tree.predict(x) for tree in trees["kept"].estimators_])
    for number, example in enumerate(examples[:50]):
        mean, deviation = forest.predict(example.signs)
        assert mean == pytest.approx(expected[:, number].mean(), abs=1e-3)  # stored in half
        assert deviation == pytest.approx(expected[:, number].std(), abs=1e-3)


def test_it_goes_through_a_file():
    forest = grown("level", drawn(100))
    file = BytesIO()
    np.savez_compressed(file, **dict(forest.arrays("level")))
    with np.load(BytesIO(file.getvalue())) as stored:
        again = Forest.read(stored, "level")
    signs = drawn(1)[0].signs
    assert again.names == forest.names
    assert again.predict(signs) == forest.predict(signs)


def test_what_ships_knows_what_it_is_asked_by():
    level, change = fitted()["level"], fitted()["change"]
    assert {"stays", "used", "distance", "strange"} <= set(level.forest.names)
    assert {"changed", "certainty", "used before", "used after"} <= set(change.forest.names)
    with pytest.raises(KeyError):
        level_from({"images": 5.0})
