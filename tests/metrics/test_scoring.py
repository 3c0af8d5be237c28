"""How outputs stand for labels, and where the tensors that say so lie."""

from __future__ import annotations

import pytest
import torch

from acclimate.errors import AcclimateError
from acclimate.metrics import Scoring

LOGITS = torch.tensor([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
META = torch.device("meta")  # another device than the CPU on any machine


def test_only_the_outputs_that_are_asked_answer():
    scoring = Scoring(keep=torch.tensor([1, 3]))
    assert scoring.predict(LOGITS).tolist() == [1, 3]
    assert scoring.top(LOGITS, 5).tolist() == [[1, 3], [3, 1]]


def test_outputs_answer_with_the_label_they_count_as():
    scoring = Scoring(label_of=torch.tensor([-1, 5, 5, 2]))
    assert scoring.top(LOGITS, 3).tolist() == [[-1, 5, 5], [2, 5, 5]]


def test_both_together():
    scoring = Scoring(keep=torch.tensor([1, 3]), label_of=torch.tensor([0, 5, 0, 2]))
    assert scoring.predict(LOGITS).tolist() == [5, 2]


@pytest.mark.parametrize(
    ("scoring", "message"),
    [
        (Scoring(keep=torch.tensor([4, 0])), "outputs up to 4, but the model has 4"),
        (Scoring(label_of=torch.tensor([0, 1])), "a model with 2 outputs for this data set, got 4"),
    ],
)
def test_a_model_with_other_outputs_is_refused_every_time(scoring, message):
    for _ in range(2):
        with pytest.raises(AcclimateError, match=message):
            scoring.predict(LOGITS)


def test_tensors_go_to_a_device_once():
    scoring = Scoring(keep=torch.tensor([1, 3]), label_of=torch.arange(4))
    there = scoring.on(META)
    assert there.keep is not None
    assert there.label_of is not None
    assert {there.keep.device, there.label_of.device} == {META}
    assert scoring.on(META) is there
    assert there.on(META) is there
    assert scoring.on(torch.device("cpu")) is scoring


def test_what_one_scoring_left_on_a_device_is_not_taken_for_another():
    few, many = Scoring(keep=torch.tensor([1])), Scoring(keep=torch.tensor([1, 3]))
    assert [len(each.on(META).keep) for each in (few, many, few)] == [1, 2, 1]


def test_nothing_to_move_is_at_home_everywhere():
    scoring = Scoring()
    assert scoring.on(META) is scoring


def test_tensors_that_went_in_inference_can_be_used_in_training():
    with torch.inference_mode():
        there = Scoring(keep=torch.tensor([1, 3])).on(META)
    assert there.keep is not None
    assert not there.keep.is_inference()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_waits_for_the_first_batch_only():
    logits = LOGITS.cuda()
    scoring = Scoring(keep=torch.tensor([1, 3]), label_of=torch.tensor([0, 5, 0, 2]))
    scoring.predict(logits)
    torch.cuda.set_sync_debug_mode("error")
    try:
        answers = scoring.predict(logits)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert answers.tolist() == [5, 2]
