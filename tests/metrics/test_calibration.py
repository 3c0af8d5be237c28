"""ECE against torchmetrics and against its definition, whole and in parts."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.errors import AcclimateError
from acclimate.metrics import Calibration, ece
from acclimate.models.libraries import import_torchvision

import_torchvision()  # torchmetrics imports it too, and fails where it does not fit torch
torchmetrics = pytest.importorskip("torchmetrics.functional.classification")
SCALES = [0.0, 0.1, 2.0, 30.0, 1000.0]
"""0: every confidence is 1 / classes, an edge of 15 and 100 bins. 1000: nearly all exactly 1."""


def example(images=400, classes=5, scale=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(images, classes, generator=generator)
    return logits, torch.randint(0, classes, (images,), generator=generator)


LOGITS, LABELS = example()


def calibration_of(rows=slice(None), bins=15):
    calibration = Calibration(bins=bins)
    calibration.update(LOGITS[rows], LABELS[rows])
    return calibration


def oracle(logits, labels, bins):
    # Softmax here, as torchmetrics takes logits that happen to lie in [0, 1] for probabilities.
    return float(
        torchmetrics.multiclass_calibration_error(
            logits.softmax(dim=1), labels, num_classes=logits.shape[1], n_bins=bins, ignore_index=-1
        )
    )


def by_hand(logits, labels, bins):
    """Image by image: a bin has its lower end and not its upper one, and 1 is a bin of its own."""
    edges = torch.linspace(0, 1, bins + 1).tolist()
    held = {}
    for p, label in zip(logits.softmax(dim=1).float().tolist(), labels.tolist(), strict=True):
        if label >= 0:
            i = max(i for i, edge in enumerate(edges) if edge <= max(p))
            held.setdefault(i, []).append((p.index(max(p)) == label) - max(p))
    return sum(abs(sum(gaps)) for gaps in held.values()) / int((labels >= 0).sum())


@pytest.mark.parametrize("bins", [1, 2, 15, 100])
@pytest.mark.parametrize("scale", SCALES)
def test_ece_is_what_it_is_defined_as(scale, bins):
    logits, labels = example(scale=scale)
    labels[::7] = -1
    assert ece(logits, labels, bins=bins) == pytest.approx(by_hand(logits, labels, bins), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [1, 2, 10, 15, 100])
@pytest.mark.parametrize("scale", SCALES)
def test_ece_is_that_of_torchmetrics(scale, bins, dtype):
    logits, labels = example(scale=scale)
    logits, labels[::7] = logits.to(dtype), -1
    assert ece(logits, labels, bins=bins) == pytest.approx(oracle(logits, labels, bins), abs=1e-6)


@given(seed=st.integers(0, 10_000), classes=st.integers(2, 12), images=st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_ece_is_that_of_torchmetrics_for_sets_of_any_size(seed, classes, images):
    logits, labels = example(images, classes, scale=8.0, seed=seed)
    assert ece(logits, labels) == pytest.approx(oracle(logits, labels, 15), abs=1e-6)


@pytest.mark.parametrize("bins", [2, 4, 8])
def test_confidences_on_the_edges_of_bins(bins):
    share = torch.tensor([0.5, 0.625, 0.75, 0.875, 1.0], dtype=torch.float64)
    logits = torch.stack([share, 1 - share], dim=1).log()
    labels = torch.tensor([0, 0, 1, 1, 0])
    # In doubles, so that the confidences are the edges to the last bit of a float.
    assert logits.softmax(dim=1)[:, 0].float().tolist() == share.tolist()
    assert ece(logits, labels, bins=bins) == pytest.approx(by_hand(logits, labels, bins), abs=1e-9)
    assert ece(logits, labels, bins=bins) == pytest.approx(oracle(logits, labels, bins), abs=1e-6)


def test_a_certain_image_has_a_bin_to_itself():
    logits = torch.tensor([[0.0, 200.0], [0.0, 4.0]])
    calibration = Calibration(bins=2)
    calibration.update(logits, torch.tensor([0, 1]))
    curve = calibration.reliability()
    assert [(b.low, b.high, b.count) for b in curve] == [(0, 0.5, 0), (0.5, 1, 1), (1, 1, 1)]
    sure = float(torch.tensor([0.0, 4.0]).softmax(dim=0)[1])
    # One bin for both would give |1/2 - (1 + sure)/2| instead.
    assert calibration.ece().value == pytest.approx((1 + (1 - sure)) / 2)


def test_the_curve_is_what_the_error_sums_up():
    calibration = calibration_of()
    curve = calibration.reliability()
    assert len(curve) == 15
    assert sum(b.count for b in curve) == len(LOGITS)
    for point in curve:
        if point.count:
            assert point.low <= point.confidence <= point.high
        else:
            assert (point.confidence, point.accuracy) == (None, None)
    gaps = sum(b.count * abs(b.accuracy - b.confidence) for b in curve if b.count)
    assert calibration.ece().value == pytest.approx(gaps / len(LOGITS))
    right = sum(b.count * b.accuracy for b in curve if b.count)
    assert right == pytest.approx(int((LOGITS.argmax(dim=1) == LABELS).sum()))


def test_a_calibrated_model_has_an_error_near_nothing():
    logits, _ = example(images=40_000, seed=5)
    generator = torch.Generator().manual_seed(6)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]
    assert ece(logits, labels) < 0.01 < 0.2 < ece(3 * logits, labels)


@given(st.lists(st.integers(0, 400), max_size=4))
@settings(deadline=None)
def test_sums_of_parts_add_up(cuts):
    edges = [0, *sorted(cuts), 400]
    parts = [calibration_of(slice(a, b)) for a, b in pairwise(edges)]
    merged = Calibration()
    for part in reversed(parts):
        merged.merge(pickle.loads(pickle.dumps(part)))
    for total in (sum(parts, Calibration()), merged):
        assert total.images == 400
        assert total.count.tolist() == calibration_of().count.tolist()
        assert total.right.tolist() == calibration_of().right.tolist()
        assert total.ece().value == pytest.approx(ece(LOGITS, LABELS), abs=1e-12)


def test_adding_leaves_the_parts_alone():
    one, other = calibration_of(slice(0, 50)), calibration_of(slice(50, 400))
    total = one + other
    total.update(LOGITS, LABELS)
    assert (one.images, int(one.count.sum())) == (50, 50)
    assert other.ece() == calibration_of(slice(50, 400)).ece()


def test_update_asks_nothing_of_the_host():
    """A meta tensor has no values, so whatever waits for one fails."""
    calibration = Calibration()
    for _ in range(2):
        calibration.update(LOGITS.to("meta"), LABELS.to("meta"))
    assert calibration.confidence.device.type == "meta"
    assert calibration.images == 800


def test_logits_between_0_and_1_are_logits():
    logits = torch.tensor([[0.9, 0.1]])
    confidence = float(logits.softmax(dim=1).max())
    assert ece(logits, torch.tensor([0])) == pytest.approx(1 - confidence)


def test_half_precision_is_binned_as_single():
    halves = LOGITS.half()
    assert ece(halves, LABELS) == ece(halves.float(), LABELS)


def test_the_interval_is_about_that_of_a_bootstrap_over_images():
    logits, labels = example(images=1500, scale=3.0, seed=9)
    calibration = Calibration()
    calibration.update(logits, labels)
    figure = calibration.ece(interval=0.9, draws=4000)
    rng = np.random.default_rng(1)
    direct = [
        ece(logits[drawn], labels[drawn])
        for drawn in (torch.from_numpy(rng.integers(1500, size=1500)) for _ in range(1000))
    ]
    expected = np.percentile(direct, [5, 95])
    width = expected[1] - expected[0]
    assert [figure.low, figure.high] == pytest.approx(expected, abs=0.15 * width)
    assert (figure.images, figure.level, figure.unit) == (1500, 0.9, "")
    assert figure.low < figure.value < figure.high


def updated(calibration, logits, labels):
    calibration.update(logits, labels)
    return calibration


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (LOGITS, LABELS[:3], "label for each of the 400 images"),
        (LOGITS[:2], torch.tensor([0, 5]), "got 1 others among 2"),
        (LOGITS[:2], torch.tensor([-1, -1]), "at least one known label"),
        (LOGITS[:0], LABELS[:0], "got none"),
        (torch.full((2, 3), float("nan")), torch.tensor([0, 1]), "NaN for 2 of 2 images"),
    ],
)
def test_what_cannot_be_scored_is_refused(logits, labels, message):
    with pytest.raises(AcclimateError, match=message):
        ece(logits, labels)
    with pytest.raises(AcclimateError, match=message):
        updated(Calibration(), logits, labels).reliability()


def test_bins_must_be_some_and_the_same():
    with pytest.raises(AcclimateError, match="bins >= 1, got 0"):
        Calibration(bins=0)
    with pytest.raises(AcclimateError, match="over 15 bins, got 10"):
        calibration_of().merge(calibration_of(bins=10))
