"""What shows of a state of a model without labels, and what others make of it: for the bank.

Each number is of the first images of a case (all of them up to what ``adapt`` looks at on a GPU,
fewer on a CPU); the error is of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.adaptation.run import OBSERVED
from acclimate.guard.estimate import change_signs, lateness, level_signs
from acclimate.guard.evidence import TEMPERATURES as KEPT
from acclimate.guard.evidence import VIEWS, Evidence, summarise
from acclimate.metrics.scores import effective_classes
from acclimate.models.outputs import find_classifier, logits_of

TEMPERATURES = tuple(np.geomspace(0.35, 6.0, 25).round(4))
MIXED_SHARE = 0.65
DROPOUT, DRAWS = 0.4, 10
NEIGHBOURS = 5
SHOWN = {"imagenet": 300, "cifar": 500}
"""Of so many images what shows without labels is measured on a CPU; the error is of all."""


def translated(images: Tensor) -> Tensor:
    """Moved by a sixteenth of each side."""
    by = max(1, images.shape[-1] // 16)
    return F.pad(images, (0, by, 0, by), mode="reflect")[..., by:, by:]


TRIED: Mapping[str, Callable[[Tensor], Tensor]] = {
    **VIEWS,
    "translated": translated,
}
"""The views that estimates could look at; those of the package come first."""


def halves(device: torch.device) -> bool:
    """Whether the device computes in bfloat16."""
    return device.type == "cuda" or bool(torch.cpu.get_capabilities().get("avx512_bf16"))


Forward = Callable[[Tensor], tuple[Tensor, Tensor]]


def forward_of(model: nn.Module) -> Forward:
    """Logits and what the classifier was fed, in float32."""
    fed: list[Tensor] = []
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    classifier = find_classifier(model)[1]

    def forward(images: Tensor) -> tuple[Tensor, Tensor]:
        handle = classifier.register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0]))
        try:
            with torch.autocast(images.device.type, torch.bfloat16, enabled=halves(images.device)):
                logits = logits_of(model(images))
        finally:
            handle.remove()
        return logits.float(), fed.pop().flatten(1).float()

    return forward


def whole(forward: Forward, images: Tensor) -> tuple[Tensor, Tensor]:
    """The same of a whole set."""
    images = images.contiguous(memory_format=torch.channels_last)  # twice as fast on a CPU
    parts = [forward(part) for part in images.split(250 if images.is_cuda else 100)]
    return torch.cat([logits for logits, _ in parts]), torch.cat([each for _, each in parts])


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The logits of the images that are looked at, by view, "plain" first; which were right."""

    logits: Mapping[str, Tensor]
    right: Tensor

    def kept(self, *others: Shown) -> dict[str, np.ndarray]:
        """What estimates may be made of, image by image, compared with other states.

        Probabilities are log-odds in steps of a tenth. ``own/v`` is that of the class predicted for
        the plain image, ``top/v`` the highest one, ``same/v`` whether both are one class;
        ``0/now/v`` is this state's probability of the class that the first other state predicts,
        ``0/then/v`` that state's probability of this one's class.
        """
        predicted = self.logits["plain"].argmax(dim=1)
        entropy = torch.special.entr(self.logits["plain"].softmax(dim=1)).sum(dim=1)
        found: dict[str, Tensor] = {
            "predicted": predicted.to(torch.int16),
            "right": self.right,
            "entropy": (20 * entropy).round().clamp(0, 255).to(torch.uint8),
        }
        for name, logits in self.logits.items():
            p = logits.softmax(dim=1)
            found[f"own/{name}"] = _steps(p.gather(1, predicted[:, None])[:, 0])
            found[f"top/{name}"] = _steps(p.amax(dim=1))
            found[f"same/{name}"] = p.argmax(dim=1) == predicted
            for number, other in enumerate(others):
                theirs = other.logits["plain"].argmax(dim=1)
                then = other.logits[name].softmax(dim=1)
                found[f"{number}/now/{name}"] = _steps(p.gather(1, theirs[:, None])[:, 0])
                found[f"{number}/then/{name}"] = _steps(then.gather(1, predicted[:, None])[:, 0])
        return {name: each.cpu().numpy() for name, each in found.items()}


def evidence_of(kept: Mapping[str, np.ndarray], state: int, classes: int) -> Evidence:
    """What :meth:`Shown.kept` has stored of a state, as the estimate takes it."""
    own = [torch.from_numpy(kept[f"own/{view}"][state]).double().div(10) for view in VIEWS]
    predicted = torch.from_numpy(kept["predicted"][state].astype(np.int64))
    most = 20 * float(np.log(max(2, classes)))
    return Evidence(
        classes=classes,
        predicted=predicted,
        confidence=torch.from_numpy(kept["own/plain"][state]).double().div(10).sigmoid(),
        entropy=torch.from_numpy(kept["entropy"][state]).double() / most,
        stays=torch.stack([torch.from_numpy(kept[f"same/{v}"][state]) for v in VIEWS], dim=1),
        probability=torch.stack(own, dim=1).sigmoid(),
        confidences=torch.zeros(len(predicted), len(KEPT)),
    )


def add_signs(states: Sequence[dict[str, Any]], seen: Sequence[Evidence]) -> None:
    """The signs of each state's level, and of its change from the source and from its start."""
    known = next((s for s in states if s["recipe"] == "bn" and s["statistics"] == "batch"), None)
    gap = [] if known is None else known["gap"]
    shift = [*gap[:7], max(gap[7:])] if gap else []  # all that lateness looks at
    start = {"source": 0}
    for number, state in enumerate(states):
        new = state["statistics"] != "source"
        state.pop("learning", None)
        if state["recipe"] == "bn":
            start[state["statistics"]] = number
        state["level"] = level_signs(seen[number], shift=shift, adapted=new)
        if number:
            state["change"] = change_signs(seen[0], seen[number], shift=shift, statistics=new)
        if state["recipe"] in ("ent", "rpl"):
            began = seen[start[state["statistics"]]]
            state["learning"] = change_signs(began, seen[number], shift=shift, statistics=False)
        for signs in (state[name] for name in ("level", "change", "learning") if name in state):
            if known is not None:
                signs |= {"distance": known["gap_mean"], "late": lateness(shift)}
                if signs.get("strange"):
                    signs["strange"] = known["gap_mean"]


def _steps(p: Tensor) -> Tensor:
    return (10 * p.double().logit(1e-6)).round().clamp(-127, 127).to(torch.int8)


@torch.no_grad()
def signals(
    model: nn.Module, images: Tensor, labels: Tensor, reference: Mapping[str, float]
) -> tuple[dict[str, Any], Tensor, Evidence, Shown]:
    """Everything that shows of a state, with its true error; predicted classes; the evidence."""
    forward = forward_of(model)
    logits, features = whole(forward, images)
    predictions, right = logits.argmax(dim=1), logits.argmax(dim=1) == labels
    shown = OBSERVED if images.is_cuda else SHOWN["imagenet" if logits.shape[1] > 100 else "cifar"]
    images, logits, features = images[:shown], logits[:shown], features[:shown]
    finite = bool(torch.isfinite(logits).all())
    logits = logits.nan_to_num(0, 0, 0)
    p = logits.softmax(dim=1)
    n, classes = p.shape
    confidence, predicted = p.max(dim=1)
    entropy = torch.special.entr(p).sum(dim=1)
    top2 = p.topk(min(2, classes), dim=1).values
    counts = predicted.bincount(minlength=classes).float()
    row: dict[str, Any] = {
        "error": 100 * float((~right).float().mean()),
        "finite": finite,
        "confidence": float(confidence.mean()),
        "confident": float((confidence > 0.9).float().mean()),
        "entropy": float(entropy.mean()) / float(np.log(classes)),
        "margin": float((top2[:, 0] - top2[:, -1]).mean()),
        "energy": float(logits.logsumexp(dim=1).mean()),
        "diversity": float(effective_classes(p.mean(dim=0))),
        "used": float(effective_classes(counts / n)),
        "largest": float(counts.max()) / n,
        "chance": float((counts / n).square().sum()),
        "mano": float((mano(logits) ** 4).mean() ** 0.25),
        "nuclear": nuclear(p),
        "atc": float((confidence < reference["threshold"]).float().mean()),
        "atc_entropy": float((entropy > reference["entropy_threshold"]).float().mean()),
        "doc": reference["error"] + reference["confidence"] - float(confidence.mean()),
        "neighbours": neighbours_agree(features, predicted),
        **dropout_disagreement(model, features, predicted),
    }
    views = TRIED if images.is_cuda or classes <= 100 else VIEWS  # minutes a pass
    seen = {
        name: whole(forward, view(images))[0].nan_to_num(0, 0, 0) for name, view in views.items()
    }
    for name, viewed in seen.items():
        q = viewed.softmax(dim=1)
        row[f"agree_{name}"] = float((q.argmax(dim=1) == predicted).float().mean())
        row[f"overlap_{name}"] = float((q * p).sum(dim=1).mean())
    row["confidence_flip"] = float((seen["mirrored"].softmax(dim=1) + p).div(2).amax(dim=1).mean())
    if views is TRIED:
        row |= mixed_pairs(forward, images, predicted)
    row["scaled"] = scaled(logits, right[:shown])
    evidence = summarise(logits, {name: seen[name] for name in VIEWS})
    found = Shown(logits={"plain": logits, **seen}, right=right[:shown])
    return row, predictions, evidence, found


def nuclear(p: Tensor) -> float:
    """The nuclear norm of the predictions over its upper bound, by the smaller Gram matrix."""
    n, classes = p.shape
    gram = p.T @ p if classes < n else p @ p.T
    return float(
        torch.linalg.eigvalsh(gram.double()).clamp_min(0).sqrt().sum()
        / (n * min(n, classes)) ** 0.5
    )


def mano(logits: Tensor) -> Tensor:
    """Softmax where the model is calibrated, else its Taylor series (Xie et al. 2024)."""
    q = 1 + logits + logits**2 / 2
    p = logits.softmax(dim=1)
    uncertain = float(-(p.clamp_min(1e-12).log().mean(dim=1)).mean()) <= 5
    return q / q.sum(dim=1, keepdim=True) if uncertain else p


def neighbours_agree(features: Tensor, predicted: Tensor) -> float:
    """The share of the nearest neighbours in feature space that are given the same class."""
    unit = F.normalize(features, dim=1)
    if len(unit) <= NEIGHBOURS:
        return 1.0
    agreeing = []
    for start in range(0, len(unit), 1000):
        near = unit[start : start + 1000] @ unit.T
        rows = torch.arange(start, start + len(near), device=near.device)
        near[torch.arange(len(near), device=near.device), rows] = -2.0
        found = near.topk(NEIGHBOURS, dim=1).indices
        agreeing.append((predicted[found] == predicted[rows, None]).float().mean(dim=1))
    return float(torch.cat(agreeing).mean())


def dropout_disagreement(model: nn.Module, features: Tensor, predicted: Tensor) -> dict[str, float]:
    """AETTA (Lee et al. 2024): predictions with dropout before the classifier that differ."""
    classifier = find_classifier(model)[1]
    if not isinstance(classifier, nn.Linear):
        return {}
    generator = torch.Generator(features.device).manual_seed(0)
    differing, mean = 0.0, torch.zeros((), device=features.device)
    for _ in range(DRAWS):
        kept = torch.rand(features.shape, generator=generator, device=features.device) >= DROPOUT
        logits = F.linear(features * kept / (1 - DROPOUT), classifier.weight, classifier.bias)
        differing += float((logits.argmax(dim=1) != predicted).float().mean())
        mean = mean + logits.softmax(dim=1).mean(dim=0)
    spread = float(torch.special.entr(mean / DRAWS).sum()) / float(np.log(len(mean)))
    return {"dropout": differing / DRAWS, "dropout_spread": spread}


def mixed_pairs(forward: Forward, images: Tensor, predicted: Tensor) -> dict[str, Any]:
    """PseudoCal (Hu et al. 2024): mixed pairs, with the larger share's prediction for a label."""
    other = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)).to(
        images.device
    )
    apart = predicted != predicted[other]
    if int(apart.sum()) < 10:
        return {"pseudocal": None, "mixed": None}
    mixed = MIXED_SHARE * images[apart] + (1 - MIXED_SHARE) * images[other][apart]
    logits, labels = whole(forward, mixed)[0], predicted[apart]
    losses = [float(F.cross_entropy(logits / t, labels)) for t in TEMPERATURES]
    best = TEMPERATURES[int(np.argmin(losses))]
    return {"pseudocal": best, "mixed": float((logits.argmax(dim=1) == labels).float().mean())}


def scaled(logits: Tensor, right: Tensor) -> dict[str, list[float]]:
    """Mean confidence and calibration error at each of the temperatures."""
    found: dict[str, list[float]] = {"confidence": [], "ece": []}
    for temperature in TEMPERATURES:
        confidence = (logits / temperature).softmax(dim=1).amax(dim=1)
        bins = (confidence * 15).long().clamp(max=14)
        gap = torch.zeros(15, device=logits.device).index_add(0, bins, confidence - right.float())
        found["confidence"].append(round(float(confidence.mean()), 4))
        found["ece"].append(round(float(gap.abs().sum()) / len(logits), 4))
    return found
