"""The embedded default: real handwritten digits, a small trained network, and fog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load
from torch import nn

from acclimate.adaptation.adapt import adapt
from acclimate.data import ClassList, Preprocessing
from acclimate.data.corruptions import corrupt
from acclimate.models import LoadedModel

__all__ = [
    "PREPROCESSING",
    "SEVERITY",
    "SHIFT",
    "DemoResult",
    "build_network",
    "digits",
    "load_digits_model",
    "run_demo",
]

# Fog, because it needs no colour and is the benchmark's everyday weather; the CIFAR constants,
# because those are the ones for small pictures. The middle severity, since an example should show
# what it is an example of: at 5, where new statistics leave 44 % wrong, learning gains nothing
# (benchmarks/results/demo_draws.json has all five).
SHIFT, SEVERITY, SEED = "fog", 3, 0
TRAINING_IMAGES = 797

PREPROCESSING = Preprocessing(size=(8, 8), mean=(0.3,), std=(0.37,))


def digits(
    split: Literal["train", "held-out"], *, shifted: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Images (uint8, N × 8 × 8) and labels: 797 to train on, the other 1,000 held out.

    >>> images, labels = digits("held-out", shifted=True)
    >>> images.shape, images.dtype
    ((1000, 8, 8), dtype('uint8'))
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(SEED).permutation(len(data.images))
    chosen = order[:TRAINING_IMAGES] if split == "train" else order[TRAINING_IMAGES:]
    images = np.round(data.images[chosen] * (255 / 16)).astype(np.uint8)
    labels = data.target[chosen].astype(np.int64)
    if shifted:
        images = corrupt(images, SHIFT, SEVERITY, preset="cifar", seed=SEED)
    return images, labels


def build_network(width: int = 32) -> nn.Sequential:
    """Three convolutions with batch norm, and a linear classifier."""

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, width, 1),
        *block(width, width, 1),
        *block(width, 2 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def load_digits_model() -> LoadedModel:
    """The trained network; ``python -m acclimate.demo.train`` makes its weights anew."""
    model = build_network()
    model.load_state_dict(load((files("acclimate.demo") / "digits.safetensors").read_bytes()))
    return LoadedModel(
        name="acclimate:digits",
        model=model.eval(),
        preprocessing=PREPROCESSING,
        classes=ClassList(tuple("0123456789")),
    )


MEANING = {
    "none": "the model as it was trained",
    "bn": "new batch-norm statistics",
    "ent": "and entropy minimisation",
    "rpl": "and robust pseudo-labels",
}


@dataclass(frozen=True)
class DemoResult:
    """Error in percent by recipe, on the same shifted images."""

    title: str
    error: dict[str, float]
    meaning: dict[str, str]
    images: int
    verdict: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "error": self.error,
            "images": self.images,
            "shift": f"{SHIFT}:{SEVERITY}",
            "guard": {"verdict": self.verdict.partition(":")[0], "reason": self.verdict},
            "seconds": round(self.seconds, 2),
        }


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread is as fast for 8 × 8 pictures, and far faster when other work holds the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run_demo(
    *, device: str | torch.device | None = None, seed: int = 0, progress: bool = True
) -> DemoResult:
    """Adapt the digits network to foggy digits with each of the four recipes."""
    began = time.perf_counter()
    model = load_digits_model()
    images, labels = digits("held-out", shifted=True)
    error: dict[str, float] = {}
    verdict = ""
    with _one_thread():
        for recipe in MEANING:
            result = adapt(
                model,
                images,
                recipe,
                labels=labels,
                device=device,
                seed=seed,
                progress=progress,
            )
            assert result.error_after is not None
            error[recipe] = round(result.error_after, 2)
            verdict = str(result.verdict)
    return DemoResult(
        title=(
            f"{len(images):,} handwritten digits in fog ({SHIFT}, severity {SEVERITY}), "
            f"a small network trained on {TRAINING_IMAGES} clear ones"
        ),
        error=error,
        meaning=MEANING,
        images=len(images),
        verdict=verdict,
        seconds=time.perf_counter() - began,
    )
