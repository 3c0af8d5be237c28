"""Train the CIFAR-10 network that the guard and the defaults are measured with.

    python benchmarks/train_cifar.py DATA_DIR OUT.safetensors [--epochs 20]

DATA_DIR holds cifar10-train*.npz and cifar10-test.npz (``images`` uint8, ``labels``).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from acclimate.data import Preprocessing
from acclimate.models.networks.wide_resnet import WideResNet

PREPROCESSING = Preprocessing(size=(32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)


def load(paths: list[Path], device: str) -> tuple[Tensor, Tensor]:
    arrays = [np.load(path) for path in paths]
    images = np.concatenate([a["images"] for a in arrays]).transpose(0, 3, 1, 2)
    labels = np.concatenate([a["labels"] for a in arrays])
    ready = PREPROCESSING.normalize(torch.from_numpy(images).to(device))
    return ready, torch.from_numpy(labels).to(device)


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Random flip and a crop after four pixels of reflection, all on the device."""
    n, device = len(images), images.device
    padded = F.pad(images, (4, 4, 4, 4), mode="reflect")
    flip = torch.rand(n, generator=generator, device=device) < 0.5
    dy, dx = torch.randint(0, 9, (2, n, 1), generator=generator, device=device)
    line = torch.arange(32, device=device)
    columns = torch.where(flip[:, None], 31 - line, line) + dx
    rows = line + dy
    index = torch.arange(n, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--depth", type=int, default=40)
    parser.add_argument("--width", type=int, default=2)
    parser.add_argument("--limit", type=int, default=None)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels = load(sorted(args.data.glob("cifar10-train*.npz")), device)
    images, labels = images[: args.limit], labels[: args.limit]
    generator = torch.Generator(device).manual_seed(0)
    model = WideResNet(args.depth, args.width).to(device)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size, began = 256, time.time()
    per_epoch = len(images) // size
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.4, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.4, total_steps=args.epochs * per_epoch, pct_start=0.25
    )
    for epoch in range(args.epochs):
        order = torch.randperm(len(images), generator=generator, device=device)
        total = torch.zeros((), device=device)
        for step in range(per_epoch):
            chosen = order[step * size : (step + 1) * size]
            batch = augmented(images[chosen], generator).contiguous(
                memory_format=torch.channels_last
            )
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(batch), labels[chosen], label_smoothing=0.0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        print(
            f"epoch {epoch + 1}: loss {float(total) / per_epoch:.3f}, {time.time() - began:.0f} s",
            flush=True,
        )
    model.eval()
    images, labels = load([args.data / "cifar10-test.npz"], device)
    with torch.no_grad():
        predicted = torch.cat([model(part).argmax(dim=1) for part in images.split(500)])
    error = 100 * float((predicted != labels).double().mean())
    print(f"clean error {error:.2f} % on {len(labels)} images")
    half = {
        k: (v.half() if v.is_floating_point() else v).cpu().contiguous()
        for k, v in model.state_dict().items()
    }
    save_file(half, args.out)


if __name__ == "__main__":
    main()
