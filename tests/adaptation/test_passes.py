"""Passes over images: the prediction of every image in its place, its scores, and no waiting."""

from __future__ import annotations

import pytest
import torch

from acclimate.adaptation.passes import Passes
from acclimate.adaptation.run import AdaptationRun
from acclimate.data import Batch, open_images
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.guard.guard import Guard
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.metrics import Tally
from acclimate.models.networks.digits import load_digits_model

IMAGES, LABELS = (part[:70] for part in digits("held-out", shifted=True))
ROOM = IMAGES.size


def passes_over(*, labels: bool = True, room: int | None = None, device: str = "cpu") -> Passes:
    source = open_images(IMAGES, preprocessing=PREPROCESSING, labels=LABELS if labels else None)
    return Passes(
        source, batch_size=16, device=torch.device(device), show_progress=False, room=room
    )


@pytest.mark.parametrize("room", [0, ROOM])
def test_predictions_are_those_of_each_image_whatever_the_order(room):
    model = load_digits_model().model
    with torch.no_grad():
        logits = model(PREPROCESSING.normalize(torch.from_numpy(IMAGES)[:, None]))
    source = torch.arange(len(IMAGES)) % 10
    tally = Tally()
    tally.update(logits, labels=torch.as_tensor(LABELS), source=source)
    passes = passes_over(room=room)
    for order in (None, torch.arange(len(IMAGES)).flip(0)):
        predictions, scores = passes.predict(
            "", lambda batch: model(batch.images), source=source, order=order
        )
        assert torch.equal(predictions.classes, logits.argmax(dim=1))
        torch.testing.assert_close(predictions.confidence, logits.softmax(dim=1).amax(dim=1))
        assert scores.error == tally.scores().error
        assert scores.agreement == tally.scores().agreement


def test_no_labels_no_scores():
    passes = passes_over(labels=False)
    (batch, *_) = passes.batches("")
    assert passes.labels_of(batch.rows) is None


def run_of(room: int) -> AdaptationRun:
    learner = Learner(load_digits_model().model, get_recipe("rpl", {"epochs": 3}), batch_size=16)
    return AdaptationRun(learner, passes_over(room=room), guard=Guard(), keep="last", seed=0)


def test_an_adaptation_has_the_same_bits_when_images_stay_on_the_device():
    without, kept = run_of(0), run_of(ROOM)
    (one, _), (other, _) = without.execute(), kept.execute()
    assert torch.equal(one.classes, other.classes)
    assert torch.equal(one.confidence, other.confidence)
    assert without.history.to_dict() == kept.history.to_dict()
    assert len(kept.passes._resident.missing(torch.arange(70))) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_no_batch_of_a_pass_waits_for_the_device():
    passes, model = passes_over(device="cuda"), load_digits_model().model.cuda()
    source, seen = torch.zeros(70, dtype=torch.int64), []

    def forward(batch: Batch) -> torch.Tensor:
        seen.append(batch)
        # Before the second batch things move to the device once, after the last they come back.
        torch.cuda.set_sync_debug_mode("default" if len(seen) in (1, 5) else "error")
        return model(batch.images)

    try:
        for _ in range(2):
            seen.clear()
            passes.predict("", forward, source=source)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(seen) == 5
