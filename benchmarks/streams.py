"""Streams that lead a model astray: does it do worse than left alone, and for how long?

    python benchmarks/streams.py run --data DIR --results FILE [--half test]
    python benchmarks/streams.py table --results FILE

DIR holds ``cifar10-test.npz``. Every setting is a stream of CIFAR-10 images through
``acclimate.Stream`` as it is by default; the unadapted network sees the same batches. A window is
ten batches, and 200 images at least. Nothing was fitted to the settings of the ``test`` half.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate import Stream
from acclimate.data.shifted import apply_shift, made_shift
from acclimate.models import LoadedModel, load
from acclimate.models.device import copy_model
from acclimate.table import Entry, Number, Table, number_entry

MODEL = "acclimate:wrn-26-2-bn-cifar10"
WINDOW, FEWEST = 10, 200
BATCH = 64
SHIFTS = {
    "dev": ("cifar/speckle_noise:4", "cifar/gaussian_blur:5"),
    "test": ("cifar/fog:5", "cifar/impulse_noise:4"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of a stream; accuracies in percent, ``worst`` and ``longest`` of windows.

    ``worst`` is by how many points a window was below the unadapted model at most, ``longest`` how
    many windows in a row were more than two points below it. ``cost`` is seconds over those of the
    same recipe without a guard.
    """

    half: str
    setting: str
    recipe: str
    images: int
    unadapted: float
    guarded: float
    unguarded: float
    worst: float
    longest: int
    contained: float
    events: int
    cost: float


class Images:
    """CIFAR-10's test images, seen through shifts."""

    def __init__(self, data: Path, loaded: LoadedModel, *, seed: int) -> None:
        with np.load(data / "cifar10-test.npz") as file:
            self.pixels = torch.from_numpy(file["images"]).permute(0, 3, 1, 2).contiguous()
            self.labels = torch.from_numpy(file["labels"])
        self.loaded = loaded
        self.generator = torch.Generator().manual_seed(seed)

    def order(self, count: int) -> Tensor:
        return torch.randperm(len(self.labels), generator=self.generator)[:count]

    def of(self, indices: Tensor, shift: str | None) -> Tensor:
        """Model input."""
        pixels = self.pixels[indices]
        if shift is not None:
            pixels = apply_shift(made_shift(shift), pixels, indices)
        assert self.loaded.preprocessing is not None
        return self.loaded.preprocessing.normalize(pixels)


Batch = tuple[Tensor, Tensor]


def parts(images: Images, indices: Tensor, shift: str | None, size: int = BATCH) -> Iterator[Batch]:
    for some in indices.split(size):
        yield images.of(some, shift), images.labels[some]


def plain(images: Images, count: int, one: str, _: str) -> Iterator[Batch]:
    return parts(images, images.order(count), one)


def sorted_classes(images: Images, count: int, one: str, _: str) -> Iterator[Batch]:
    order = images.order(count)
    return parts(images, order[images.labels[order].argsort()], one)


def mixed_then_sorted(images: Images, count: int, one: str, two: str) -> Iterator[Batch]:
    yield from plain(images, count // 2, one, two)
    yield from sorted_classes(images, count // 2, one, two)


def uneven(images: Images, count: int, one: str, _: str) -> Iterator[Batch]:
    """Every batch draws its classes anew, a few of them most of its images."""
    order, draw = images.order(len(images.labels)), np.random.default_rng(0)
    left = {c: order[images.labels[order] == c].tolist() for c in range(10)}
    for _number in range(count // BATCH):
        drawn = draw.choice(10, size=BATCH, p=draw.dirichlet([0.3] * 10))
        some = torch.tensor([left[c].pop() for c in drawn if left[c]])
        yield images.of(some, one), images.labels[some]


def clean_sorted(images: Images, count: int, _: str, __: str) -> Iterator[Batch]:
    order = images.order(count)
    return parts(images, order[images.labels[order].argsort()], None)


def one_class(images: Images, count: int, _: str, __: str) -> Iterator[Batch]:
    order = images.order(len(images.labels))
    return parts(images, order[images.labels[order] == 3][:count], None)


def one_class_then_normal(images: Images, count: int, one: str, two: str) -> Iterator[Batch]:
    yield from one_class(images, count // 2, one, two)
    yield from plain(images, count // 2, one, two)


def single(images: Images, count: int, one: str, _: str) -> Iterator[Batch]:
    return parts(images, images.order(count // 4), one, 1)


def fours(images: Images, count: int, one: str, _: str) -> Iterator[Batch]:
    return parts(images, images.order(count // 2), one, 4)


def alternating(images: Images, count: int, one: str, two: str) -> Iterator[Batch]:
    for number, indices in enumerate(images.order(count).split(BATCH)):
        yield images.of(indices, (one, two)[number % 2]), images.labels[indices]


def noise_between(images: Images, count: int, one: str, _: str) -> Iterator[Batch]:
    """Half of the batches are no images at all; nothing is right for these: not counted."""
    for number, (x, y) in enumerate(plain(images, count, one, "")):
        if number % 2:
            x = torch.randn(x.shape, generator=images.generator)
            y = torch.full_like(y, -1)
        yield x, y


def black_between(images: Images, count: int, one: str, _: str) -> Iterator[Batch]:
    for number, (x, y) in enumerate(plain(images, count, one, "")):
        if number % 2:
            x, y = torch.full_like(x, float(x.min())), torch.full_like(y, -1)
        yield x, y


def crafted(images: Images, count: int, one: str, _: str) -> Iterator[Batch]:
    """A few steps against the unadapted network: towards its second guess, by 8 grey levels."""
    net = copy_model(images.loaded.model).eval()
    record = images.loaded.preprocessing
    assert record is not None
    level = 1 / 255 / float(torch.tensor(record.std).mean())
    for x, y in plain(images, count, one, ""):
        goal = net(x).topk(2).indices[:, 1].detach()
        moved = x.clone()
        for _step in range(5):
            moved.requires_grad_(True)
            (slope,) = torch.autograd.grad(F.cross_entropy(net(moved), goal), moved)
            moved = (moved.detach() - 2 * level * slope.sign()).clamp(x - 8 * level, x + 8 * level)
        yield moved, y


def long(images: Images, count: int, one: str, _: str) -> Iterator[Batch]:
    """10,000 steps, over all images again and again."""
    steps = 5 * count  # 10,000 of the 2,000 images that the others have
    order = torch.cat([images.order(len(images.labels)) for _ in range(1 + 16 * steps // 10_000)])
    return parts(images, order[: 16 * steps], one, 16)


SETTINGS: dict[str, Callable[[Images, int, str, str], Iterator[Batch]]] = {
    "mixed classes": plain,
    "sorted by class": sorted_classes,
    "sorted by class, clean": clean_sorted,
    "mixed, then sorted by class": mixed_then_sorted,
    "other classes in each batch": uneven,
    "one class, clean": one_class,
    "one class, then all": one_class_then_normal,
    "single images": single,
    "batches of four": fours,
    "two shifts in turn": alternating,
    "noise in every second batch": noise_between,
    "black in every second batch": black_between,
    "crafted against the model": crafted,
    "ten times the rate, 10,000 steps": long,
}
FAST = {"ten times the rate, 10,000 steps": 0.1}
"""Learning rates that are not the default."""


def hits(predict: Callable[[Tensor], Tensor], batches: list[Batch]) -> Tensor:
    """Per batch, what share is right; nan where nothing can be."""
    found = []
    for x, y in batches:
        right = predict(x).argmax(dim=1) == y
        known = y >= 0
        found.append(right[known].float().mean() if bool(known.any()) else torch.tensor(torch.nan))
    return 100 * torch.stack(found)


def measured(
    images: Images, half: str, setting: str, recipe: str, *, count: int, rate: float
) -> Row:
    """Run one stream with and without its guard."""
    batches = list(SETTINGS[setting](images, count, *SHIFTS[half]))
    rate = rate or FAST.get(setting, 0.0)
    options = {"optimizer.lr": rate} if rate else {}

    def made(guard: str) -> Stream:
        return Stream(images.loaded, recipe, options=options, guard=guard)

    unadapted = hits(torch.no_grad()(copy_model(images.loaded.model).eval()), batches)
    began = time.perf_counter()
    unguarded = hits(made("off"), batches)
    middle = time.perf_counter()
    stream, contained = made("rollback"), 0

    def guarded_logits(x: Tensor) -> Tensor:
        nonlocal contained
        logits: Tensor = stream(x)
        contained += stream.contained
        return logits

    guarded = hits(guarded_logits, batches)
    seconds = time.perf_counter() - middle
    window = max(WINDOW, math.ceil(FEWEST / len(batches[0][1])))
    lost = [
        float(a.nanmean() - b.nanmean())
        for a, b in zip(unadapted.split(window), guarded.split(window), strict=True)
    ]
    run = longest = 0
    for each in lost:
        run = run + 1 if each > 2 else 0
        longest = max(longest, run)
    return Row(
        half=half,
        setting=setting,
        recipe=recipe,
        images=sum(len(y) for _, y in batches),
        unadapted=float(unadapted.nanmean()),
        guarded=float(guarded.nanmean()),
        unguarded=float(unguarded.nanmean()),
        worst=max(lost),
        longest=longest,
        contained=contained / len(batches),
        events=stream.event_count,
        cost=seconds / (middle - began),
    )


def run(args: argparse.Namespace) -> None:
    """Run what is missing."""
    warnings.simplefilter("ignore")
    images = Images(args.data, load(MODEL), seed=0)
    done = read(args.results)
    for recipe in args.recipes:
        for setting in args.settings or SETTINGS:
            if any((r.half, r.setting, r.recipe) == (args.half, setting, recipe) for r in done):
                continue
            row = measured(
                images, args.half, setting, recipe, count=args.images, rate=args.learning_rate
            )
            done.append(row)
            args.results.write_text(json.dumps([asdict(each) for each in done], indent=1) + "\n")
            print(row, flush=True)


def read(path: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []


def table(args: argparse.Namespace) -> None:
    """Print the results as a table."""
    print(markdown(read(args.results)))


def markdown(rows: list[Row]) -> str:
    """The table of docs/reliability.md."""
    header = [
        "half", "stream", "images", "unadapted, % right", "guarded", "unguarded", "worst",
        "windows below", "contained",
    ]  # fmt: skip
    lines: list[list[Entry]] = [
        [
            row.half,
            row.setting,
            Number(f"{row.images:,}", row.images),
            *map(number_entry, (row.unadapted, row.guarded, row.unguarded, row.worst)),
            Number(str(row.longest), row.longest),
            Number(f"{row.contained:.0%}", row.contained),
        ]
        for row in rows
    ]
    return Table(lines, header).markdown()


def main() -> None:
    """Run or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--half", choices=sorted(SHIFTS), default="dev")
    one.add_argument("--settings", nargs="+", choices=list(SETTINGS))
    one.add_argument("--recipes", nargs="+", default=["ent"])
    one.add_argument("--learning-rate", type=float, default=0.0, help="another than the default")
    one.add_argument("--images", type=int, default=2000)
    two = commands.add_parser("table")
    for each, call in ((one, run), (two, table)):
        each.add_argument("--results", type=Path, required=True)
        each.set_defaults(call=call)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
