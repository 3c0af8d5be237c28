"""What shows of a model without labels: its predictions for images and for mild views of them."""

from __future__ import annotations

import pytest
import torch

from acclimate.guard.evidence import TEMPERATURES, VIEWS, mirrored, observe, summarise, zoomed


def logits(*rows: float) -> torch.Tensor:
    """Of two classes, with these logits for the first one."""
    return torch.tensor([[row, 0.0] for row in rows])


def test_a_mirrored_image_mirrored_again_is_itself():
    images = torch.rand(3, 3, 8, 8)
    assert torch.equal(mirrored(mirrored(images)), images)
    assert not torch.equal(mirrored(images), images)


def test_zooming_keeps_the_centre_the_size_and_the_scale_of_the_values():
    images = torch.zeros(1, 1, 9, 9)
    images[0, 0, 4, 4], images[0, 0, 0, 0] = 1000.0, 1000.0
    seen = zoomed(images)
    assert seen.shape == images.shape
    assert seen[0, 0, 4, 4] == 1000
    assert seen[0, 0, 0, 0] < 1000  # the corner is cut off
    vectors = torch.rand(3, 5)
    assert torch.equal(zoomed(vectors), vectors)


def test_the_evidence_of_logits():
    plain, same, turned = logits(2.0, -1.0), logits(1.0, -3.0), logits(-1.0, -1.0)
    evidence = summarise(plain, {"mirrored": same, "zoomed": turned})
    assert (len(evidence), evidence.classes) == (2, 2)
    assert evidence.predicted.tolist() == [0, 1]
    assert evidence.stays.tolist() == [[True, False], [True, True]]
    sure = plain.softmax(1).amax(1)
    torch.testing.assert_close(evidence.confidence, sure)
    assert evidence.probability[0].tolist() == pytest.approx([0.7311, 0.2689], abs=1e-4)
    assert ((evidence.entropy > 0) & (evidence.entropy < 1)).all()


def test_batches_tell_what_the_whole_tells():
    images = torch.randn(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) @ weight

    whole, parts = observe(forward, [images]), observe(forward, images.split(6))
    for name in ("predicted", "confidence", "entropy", "stays", "probability", "confidences"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name))


@pytest.mark.parametrize("accuracy", [0.6, 0.7, 0.95])
def test_the_temperature_makes_the_mean_confidence_what_is_asked(accuracy):
    plain = logits(*torch.linspace(-4, 4, 50).tolist())
    found = summarise(plain, dict.fromkeys(VIEWS, plain)).temperature(accuracy)
    mean = (plain / found).softmax(1).amax(1).mean()
    assert float(mean) == pytest.approx(accuracy, abs=5e-3)


def test_the_temperature_stays_within_what_is_sensible():
    plain = logits(0.01, 0.02)
    evidence = summarise(plain, dict.fromkeys(VIEWS, plain))
    assert evidence.temperature(0.999) == float(TEMPERATURES[0])
    sure = logits(200.0, 200.0)
    assert summarise(sure, dict.fromkeys(VIEWS, sure)).temperature(0.5) == float(TEMPERATURES[-1])
