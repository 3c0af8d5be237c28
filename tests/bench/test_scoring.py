"""One pass over labelled images, against counting by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from acclimate.bench.scoring import evaluate, evaluated_record, forgetting
from acclimate.data import ClassList, ImageSource, open_images
from acclimate.errors import AcclimateError
from acclimate.metrics import Scoring, ece, top_k_error

LOGITS = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(0, 8, (50,), generator=torch.Generator().manual_seed(1))
MODEL = nn.Flatten()


def answers(scoring: Scoring | None = None, labels=LABELS) -> ImageSource:
    """Images that are their own logits."""
    source = open_images(LOGITS.view(50, 8, 1, 1), labels=labels)
    source.scoring = scoring
    return source


@pytest.mark.parametrize("batch_size", [1, 7, 50, 500])
def test_errors_and_calibration_of_any_batch_size(batch_size):
    scores = evaluate(MODEL, answers(), batch_size=batch_size, device="cpu", progress=False)
    assert scores.errors.error().value == top_k_error(LOGITS, LABELS)
    assert scores.errors.error(5).value == top_k_error(LOGITS, LABELS, k=5)
    assert scores.calibration.ece().value == pytest.approx(ece(LOGITS, LABELS), abs=1e-9)
    assert torch.equal(scores.predictions, LOGITS.argmax(dim=1))


def test_more_images_than_are_scored_at_once():
    many = torch.randn(4500, 8, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(4500) % 8
    source = open_images(many.view(4500, 8, 1, 1), labels=labels)
    scores = evaluate(MODEL, source, batch_size=64, progress=False)
    assert torch.equal(scores.predictions, many.argmax(dim=1))
    assert scores.errors.counts() == ((many.argmax(dim=1) != labels).sum().item(), 4500)
    assert scores.calibration.ece().value == pytest.approx(ece(many, labels), abs=1e-9)


def test_a_model_that_takes_no_single_image_is_run_on_batches_alone():
    seen = []

    class Squeezing(nn.Module):
        def forward(self, images):
            seen.append(len(images))
            return images.squeeze()

    source = open_images(torch.eye(6).view(6, 6, 1, 1), labels=[0, 1, 2, 3, 4, 0])
    scores = evaluate(Squeezing(), source, batch_size=3, progress=False)
    assert scores.errors.counts() == (1, 6)
    assert seen == [3, 3]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("scoring", [None, Scoring(keep=torch.tensor([0, 2]))], ids=str)
def test_no_batch_waits_for_a_gpu_and_no_image_stays_there(scoring):
    images = torch.rand(160, 3, 64, 64)
    source = open_images(images, labels=torch.arange(160) % 2 * 2)
    source.scoring = scoring
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    seen = []

    def watch(*_) -> None:
        seen.append(1)
        # Before the second batch things move to the device once, after the last they come back.
        torch.cuda.set_sync_debug_mode("default" if len(seen) in (1, 10) else "error")

    model.register_forward_pre_hook(watch)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    try:
        scores = evaluate(model, source, batch_size=16, device="cuda", progress=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(seen) == 10
    assert torch.cuda.max_memory_allocated() - before < images.nbytes
    assert scores.predictions.device.type == "cpu"
    assert scores.errors.counts()[1] == 160


def test_a_subset_of_the_outputs_is_asked():
    keep = torch.tensor([1, 4, 6])
    labels = keep[LABELS % 3]
    scores = evaluate(MODEL, answers(Scoring(keep=keep), labels), device="cpu", progress=False)
    within = LOGITS[:, keep]
    wrong = (within.argmax(dim=1) != LABELS % 3).sum().item()
    assert scores.errors.counts() == (wrong, 50)
    assert scores.calibration.ece().value == pytest.approx(ece(within, LABELS % 3), abs=1e-9)


def test_unknown_labels_are_left_out_of_a_subset_too():
    keep = torch.tensor([1, 4, 6])
    labels = torch.where(torch.arange(50) < 20, keep[LABELS % 3], -1)
    scores = evaluate(MODEL, answers(Scoring(keep=keep), labels), progress=False)
    assert scores.errors.counts()[1] == 20
    assert scores.calibration.ece().images == 20


def test_predictions_through_a_map_have_no_calibration():
    label_of = torch.tensor([0, 0, 1, 1, -1, -1, 2, 2])
    scores = evaluate(MODEL, answers(Scoring(label_of=label_of), LABELS % 3), progress=False)
    wrong = (label_of[LOGITS.argmax(dim=1)] != LABELS % 3).sum().item()
    assert scores.errors.counts() == (wrong, 50)
    assert scores.calibration is None


def test_without_labels_there_is_nothing_to_score():
    with pytest.raises(AcclimateError, match="expected labelled images"):
        evaluate(MODEL, open_images(torch.rand(4, 3, 1, 1)), progress=False)


def test_labels_the_model_has_no_output_for():
    calls = []
    model = nn.Flatten()
    model.register_forward_hook(lambda *args: calls.append(1))
    with pytest.raises(AcclimateError, match="below the model's 8 outputs, got 9"):
        evaluate(model, answers(labels=LABELS + 2), batch_size=5, progress=False)
    assert len(calls) == 1


def test_labels_that_are_not_asked_for_are_no_labels():
    source = answers(Scoring(keep=torch.tensor([1, 4])), torch.full((50,), 3))
    with pytest.raises(AcclimateError, match="50 others"):
        evaluate(MODEL, source, progress=False).errors.error()


def test_a_model_stays_in_evaluation_and_unchanged():
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(8)).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    evaluate(model, answers(), device="cpu", progress=False)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


# Records.


def test_predictions_through_a_map_are_looked_into():
    logits = torch.eye(6)[[0, 0, 1, 2, 5, 5]].view(6, 6, 1, 1)
    source = open_images(logits, labels=[0, 1, 0, 1, 0, 1])
    source.scoring = Scoring(label_of=torch.tensor([0, 0, 1, 1, -1, -1]))
    source.class_names = ("bird", "dog")
    record = evaluated_record(evaluate(MODEL, source, progress=False), source, None)
    assert record.wrong == 3  # a dog taken for a bird, and two predictions that are neither
    assert record.filtered_error == 25
    assert record.unmappable_percent == pytest.approx(100 / 3)
    assert (record.most_predicted[0]["name"], record.most_predicted[0]["count"]) == ("0", 2)
    (pair,) = record.confusions
    assert (pair["label"], pair["answer"], pair["count"]) == ("dog", "bird", 1)
    assert (record.ece, record.reliability) == (None, ())


def test_outputs_are_named_where_the_model_knows_its_classes():
    source = answers(Scoring(label_of=torch.tensor([0, 0, 1, 1, -1, -1, 2, 2])), LABELS % 3)
    scores = evaluate(MODEL, source, progress=False)
    record = evaluated_record(scores, source, ClassList(tuple("abcdefgh")))
    assert {each["name"] for each in record.most_predicted} < set("abcdefgh")
    assert record.confusions == ()  # the data set's classes have no names


# Forgetting.


def test_statistics_come_from_the_clean_images_again():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(8)).eval()
    adapted = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(8)).eval()
    adapted[1].running_mean += 1000 * torch.arange(8)  # of a very different place
    clean = answers(labels=LOGITS.argmax(dim=1))
    lost = forgetting(model, adapted, clean, batch_size=50, progress=False)
    assert lost.before == 0
    assert lost.statistics_estimated_anew
    standard = (LOGITS - LOGITS.mean(dim=0)) / LOGITS.std(dim=0)
    differ = (standard.argmax(dim=1) != LOGITS.argmax(dim=1)).double().mean().item()
    assert lost.after == pytest.approx(100 * differ)
    assert lost.images == 50


def test_a_model_without_batch_norm_is_scored_unchanged():
    adapted = nn.Sequential(nn.Flatten(), nn.Linear(8, 8, bias=False))
    nn.init.eye_(adapted[1].weight)
    lost = forgetting(MODEL, adapted, answers(), progress=False)
    assert lost.statistics_estimated_anew is False
    assert lost.after == lost.before > 0
