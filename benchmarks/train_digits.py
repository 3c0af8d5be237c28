"""Train the embedded network on clean digits: ``python benchmarks/train_digits.py``."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from acclimate.data.digits import PREPROCESSING, digits
from acclimate.models.networks import digits as network

__all__ = ["main"]

EPOCHS, BATCH = 60, 64


def _shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by up to one pixel, the usual augmentation for digits."""
    padded = F.pad(images, (1, 1, 1, 1), value=float(images.min()))
    offsets = torch.randint(0, 3, (len(images), 2), generator=generator)
    moved = [p[:, dy : dy + 8, dx : dx + 8] for p, (dy, dx) in zip(padded, offsets, strict=True)]
    return torch.stack(moved)


def main() -> None:
    """Train, report the clean error, and write the weights beside the network."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    arrays, targets = digits("train")
    images, labels = (
        PREPROCESSING.normalize(torch.from_numpy(arrays)[:, None]),
        torch.from_numpy(targets),
    )
    model = network.digits_network()
    steps = EPOCHS * (len(images) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(images), generator=generator).split(BATCH)[
            : len(images) // BATCH
        ]:
            loss = F.cross_entropy(model(_shifted(images[chosen], generator)), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    arrays, targets = digits("held-out")
    with torch.no_grad():
        logits = model(PREPROCESSING.normalize(torch.from_numpy(arrays)[:, None]))
    wrong = int((logits.argmax(dim=1) != torch.from_numpy(targets)).sum())
    print(f"clean error {100 * wrong / len(targets):.1f} % on {len(targets)} held-out digits")
    tensors = {k: v.contiguous() for k, v in model.state_dict().items()}
    save_file(tensors, Path(network.__file__).with_suffix(".safetensors"))


if __name__ == "__main__":
    main()
