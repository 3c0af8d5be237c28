"""The guard's one line at the end: did adaptation look helpful, and why."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.history import History
from acclimate.metrics import Scores
from acclimate.metrics.label_free import information_maximization
from acclimate.words import VerdictWord

__all__ = ["Verdict", "judge", "label_free_score"]


@dataclass(frozen=True)
class Verdict:
    """``helpful``, ``neutral``, ``harmful`` or ``refused`` (harmful, and not handed back), and why."""

    word: VerdictWord
    reason: str

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}"


def label_free_score(scores: Scores) -> float:
    """How good predictions look without labels; larger is better."""
    return information_maximization(diversity=scores.diversity, entropy=scores.entropy)


def judge(history: History) -> Verdict:
    """Compare the model handed back with the source model, without labels."""
    source, final = history.source, history.final
    if source is None or final is None:
        return Verdict("neutral", "the guard was off and compared nothing")
    if final.agreement == 1.0:
        return Verdict("neutral", "no prediction changed")
    gain = label_free_score(final) - label_free_score(source)
    word: VerdictWord = "helpful" if gain > 0 else "harmful"
    return Verdict(word, f"score {gain:+.2f}")
