"""The bank of cases: what every treatment does to a model on a set of images, and what shows of it.

    python benchmarks/bank.py run --data DIR --half dev --results FOLDER [--part 0/3]
    python benchmarks/bank.py list --half dev
    python benchmarks/bank.py pack --data DIR    # decode the photos once
    python benchmarks/bank.py gather --half dev --results FOLDER/*.jsonl --out FILE.jsonl.gz \\
        [--evidence FOLDER]    # with the signs as the package makes them now

A case is a model and a set of images: a shift, which classes it holds, how many images. For each
case all treatments are run (statistics of the source, of the batches, or mixed; no learning,
``ent`` and ``rpl`` at three rates), and of every state that a user could be given the true error is
stored with everything that can be seen without labels. Cases that are in the file already are not
run again: stop and resume at any time. Thresholds and weights may be fitted on the ``dev`` half
only.

DIR holds what ``photo_models.py`` needs, ``photos/`` (ImageNet validation photos in folders
named by WordNet id), ``imagenette/`` (more of ten of the classes), ``cifar10-test.npz``,
``mnist-test.npz``, ``usps-test.npz``, ``mnist-m-test.npz``, and ``mnist/model.safetensors``:

    acclimate pretrain --model acclimate:wrn-26-1-bn --method vanilla --dataset mnist --root DIR \\
        --epochs 3 --lr 0.1 --out DIR/mnist
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.acceleration import Acceleration
from acclimate.data import Preprocessing, open_images
from acclimate.data.digits import digits
from acclimate.data.shift import DEV, SEVERITIES, TEST
from acclimate.data.shifted import apply_shift, made_shift
from acclimate.guard.evidence import Evidence
from acclimate.guard.guard import drift
from acclimate.learner.learner import Learner
from acclimate.methods import get_recipe
from acclimate.models import LoadedModel, load
from acclimate.models.device import copy_model
from acclimate.models.layers import batch_norm_layers
from acclimate.models.networks.digits import load_digits_model
from acclimate.table import Table
from bank_signals import Shown, add_signs, evidence_of, forward_of, halves, signals, whole

BATCH = 64
RATES = {"batch": (1e-3, 1e-2, 1e-1), "mixture": (1e-2,), "source": (1e-4, 1e-3, 1e-2)}
"""By the statistics, of batches of 64 images, SGD with momentum 0.9."""
Learn = Literal["all", "some", "none"]
SOME = 3
"""So many of the treatments that learn at one of ``RATES`` are drawn for a case by "some"."""
SIZES = (50, 100, 200, 500, 1000, 2000)
DRAWS = {"dev": 3, "test": 1}
"""How often sizes and classes are drawn for each shift."""
FOLLOWED = {
    ("batch", True): ("ent", 5e-3), ("batch", False): ("ent", 1.5e-2),
    ("source", True): ("rpl", 5e-4), ("source", False): ("rpl", 5e-4),
}  # fmt: skip
"""By the statistics, and whether there are many classes: the learning that is followed for long."""
EPOCHS = (1, 3, 10, 30)
LONGEST = 6000
"""It is looked at after these epochs, as far as it sees so many images."""

MODELS = {
    "resnet50": ("photos", "imagenet"),
    "efficientnet-lite0": ("photos", "imagenet"),
    "efficientnet-lite1": ("photos", "imagenet"),
    "efficientnet-lite2": ("photos", "imagenet"),
    "wrn-26-2-bn": ("cifar10", "cifar"),
    "wrn-40-2-augmix": ("cifar10", "cifar"),
    "wrn-26-2-gn": ("cifar10", "cifar"),
    "vit": ("cifar10", "cifar"),
    "mnist": ("mnist", "cifar"),
    "digits": ("digits", "cifar"),
}
"""The data a model's images come from, and whose constants its corruptions have."""

CHANGES: dict[str, tuple[str, ...]] = {
    "dev": ("gamma", "rotated", "posterized", "low-light", "colour-cast", "bars"),
    "test": (),
}
"""Shifts of our own, to develop on: the benchmark has but four hold-out corruptions."""
HOPELESS: dict[str, tuple[str, ...]] = {
    "dev": ("uniform-noise", "bgr", "not-scaled", "shuffled-patches"),
    "test": ("gaussian-images", "inverted", "wrong-mean", "other-objects", "black"),
}
"""Where adaptation can hardly help, or the labels mean nothing."""
NATURAL: dict[str, dict[str, tuple[str, ...]]] = {
    "dev": {"mnist": ("usps",)},
    "test": {"mnist": ("mnist-m",)},
}
UNLABELLED = ("uniform-noise", "gaussian-images", "black", "other-objects")
"""Images that are of no class: every prediction is wrong, and no number of them is right."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and a set of images; everything drawn follows from it."""

    model: str
    shift: str
    classes: str
    images: int
    second: str | None = None

    @property
    def name(self) -> str:
        """For the list and the progress."""
        mixed = f"+{self.second}" if self.second else ""
        return f"{self.model} {self.shift}{mixed} {self.classes} {self.images}"


def cases(half: str) -> Iterator[Case]:
    """All cases of a half; sizes and classes are drawn, the same ones every time."""
    drawn = dict.fromkeys(case for number in range(DRAWS[half]) for case in draws(half, number))
    known = set(cases("dev")) if half == "test" else set()  # clean images are in both
    yield from (case for case in drawn if case not in known)


def draws(half: str, number: int) -> Iterator[Case]:
    """One case of each shift, and some of clean, mixed and hopeless images."""
    for model, (_, preset) in MODELS.items():
        draw = random.Random(f"{half} {model}" + (f" {number}" if number else ""))
        corruptions = [f"{preset}/{name}:{s}" for name in groups(half) for s in SEVERITIES]
        corruptions += [f"{name}:{s}" for name in CHANGES[half] for s in (1, 3, 5)]
        natural = NATURAL[half].get(model, ())
        few = [kind for kind in class_choices(model) if kind != "all"]
        for shift in (*corruptions, *natural, *natural):
            kind = "all" if draw.random() < 0.6 else draw.choice(few)
            yield Case(model=model, shift=shift, classes=kind, images=size(draw, model, kind))
        for kind in class_choices(model) * 2:
            yield Case(model=model, shift="clean", classes=kind, images=size(draw, model, kind))
        for _ in range(4):
            one, two = draw.sample(corruptions, 2)
            images = size(draw, model, "all")
            yield Case(model=model, shift=one, second=two, classes="all", images=images)
        for shift in HOPELESS[half]:
            yield Case(model=model, shift=shift, classes="all", images=size(draw, model, "all"))


def groups(half: str) -> tuple[str, ...]:
    """The corruptions of a half."""
    return DEV if half == "dev" else TEST


def class_choices(model: str) -> list[str]:
    """Which classes a set can hold."""
    many = ["100", "20", "10"] if MODELS[model][0] == "photos" else ["5"]
    return ["all", *many, "2", "1", "long-tailed"]


def size(draw: random.Random, model: str, kind: str) -> int:
    """How many images: most sets are of some hundreds."""
    if kind in ("100", "20") and MODELS[model][0] == "photos":  # five photos of each class
        return min(5 * int(kind), draw.choice(SIZES[:4]))
    return draw.choice(SIZES if draw.random() < 0.3 else SIZES[1:4])


class Bank:
    """The models and their images, on one device."""

    def __init__(self, data: Path, device: torch.device) -> None:
        self.data, self.device = data, device
        self.model, self.images = cache(self._model), cache(self._images)
        self.reference = cache(self._reference)

    def _model(self, name: str) -> LoadedModel:
        """A trained network."""
        os.environ["PHOTO_WEIGHTS"] = str(self.data)
        if MODELS[name][0] == "photos":
            import photo_models

            loaded: LoadedModel = getattr(photo_models, name.replace("-", "_"))()
            return loaded
        if name == "digits":
            return load_digits_model()
        if name == "mnist":
            return load("acclimate:wrn-26-1-bn", weights=self.data / "mnist" / "model.safetensors")
        return load({"vit": "acclimate:vit-dino-cifar10"}.get(name, f"acclimate:{name}-cifar10"))

    def _images(self, name: str, like: str) -> tuple[Tensor, Tensor]:
        """uint8 images N×C×H×W as a model takes them, and their classes."""
        loaded = self.model(like)
        if name == "digits":
            pixels, labels = digits("held-out")
            return torch.from_numpy(pixels)[:, None], torch.from_numpy(labels)
        path = self.data / f"{name}.npz"
        if not path.exists():
            path = self.data / name
        source = open_images(
            path, preprocessing=loaded.preprocessing, classes=loaded.classes, progress=False
        )
        assert source.labels is not None
        return source.read(torch.arange(len(source))), source.labels

    def of(self, case: Case) -> tuple[Tensor, Tensor]:
        """Model input and labels (-1 where an image is of no class) of a case, on the device."""
        data, _ = MODELS[case.model]
        stem = {"cifar10": "cifar10-test", "mnist": "mnist-test"}.get(data, data)
        stem = {"usps": "usps-test", "mnist-m": "mnist-m-test"}.get(case.shift, stem)
        if data == "photos" and case.classes in ("10", "2", "1"):
            stem = "imagenette"
        if case.shift == "other-objects":
            stem = "mnist-m-test" if data == "cifar10" else "cifar10-test"
        generator = torch.Generator().manual_seed(random.Random(case.name).getrandbits(32))
        pixels, labels = self.images(stem, case.model)
        chosen = chosen_images(labels, case, generator)
        pixels, labels = pixels[chosen].to(self.device), labels[chosen]
        record = self.model(case.model).preprocessing
        assert record is not None
        if case.second is None:
            images = shifted(pixels, chosen, case.shift, record, generator)
        else:
            half = len(pixels) // 2
            parts = [(slice(None, half), case.shift), (slice(half, None), case.second)]
            images = torch.cat(
                [shifted(pixels[s], chosen[s], name, record, generator) for s, name in parts]
            )
        if case.shift in UNLABELLED:
            labels = torch.full_like(labels, -1)
        order = torch.randperm(len(images), generator=generator)
        return images[order.to(self.device)], labels[order].to(self.device)

    def _reference(self, name: str) -> dict[str, float]:
        """What a user with labelled clean images would know: threshold and error of the source."""
        case = Case(model=name, shift="clean", classes="all", images=1000)
        images, labels = self.of(case)
        with torch.no_grad():
            logits = whole(forward_of(copy_model(self.model(name).model).to(self.device)), images)[
                0
            ]
        p = logits.softmax(dim=1)
        wrong = float((p.argmax(dim=1) != labels).float().mean())
        confidence, entropy = p.amax(dim=1), torch.special.entr(p).sum(dim=1)
        return {
            "error": wrong,
            "confidence": float(confidence.mean()),
            "threshold": float(confidence.quantile(wrong)),
            "entropy_threshold": float(entropy.quantile(1 - wrong)),
        }


def chosen_images(labels: Tensor, case: Case, generator: torch.Generator) -> Tensor:
    """Indices of the images of a case."""
    order = torch.randperm(len(labels), generator=generator)
    if case.classes.isdigit():
        present = labels.unique()
        few = present[torch.randperm(len(present), generator=generator)[: int(case.classes)]]
        order = order[torch.isin(labels[order], few)]
    elif case.classes == "long-tailed":  # the most frequent class a hundred times the rarest
        rank = torch.randperm(int(labels.max()) + 1, generator=generator)
        share = 0.01 ** (rank / max(len(rank) - 1, 1))
        kept = torch.rand(len(order), generator=generator) < share[labels[order]]
        order = order[kept]
    return order[: case.images]


def shifted(
    pixels: Tensor, indices: Tensor, name: str, record: Preprocessing, generator: torch.Generator
) -> Tensor:
    """Model input: the images seen through a shift."""
    if "/" in name:
        pixels = apply_shift(made_shift(name), pixels, indices)
        return record.normalize(pixels)
    word, _, number = name.partition(":")
    images = record.normalize(changed(pixels, word, int(number or 0), generator))
    if word == "not-scaled":
        images = record.standardize(pixels.float())
    elif word == "wrong-mean":
        images = images + 1.0
    elif word == "bgr":
        images = images.flip(1)
    return images


def changed(pixels: Tensor, word: str, severity: int, generator: torch.Generator) -> Tensor:
    """uint8 images through a change that is none of the benchmark's corruptions."""
    amount = severity / 5
    x = pixels.float() / 255
    n, _, height, width = x.shape

    def noise(kind: Callable[..., Tensor] = torch.randn) -> Tensor:
        return kind(x.shape, generator=generator).to(x.device)

    if word == "gamma":
        x = x ** (1 + 3 * amount)
    elif word == "rotated":
        angle = torch.tensor(np.deg2rad(60 * amount))
        rows = torch.tensor([[angle.cos(), -angle.sin(), 0.0], [angle.sin(), angle.cos(), 0.0]])
        grid = F.affine_grid(rows.expand(n, 2, 3).to(x), list(x.shape), align_corners=False)
        x = F.grid_sample(x, grid, align_corners=False, padding_mode="reflection")
    elif word == "posterized":
        levels = {1: 8, 3: 4, 5: 2}[severity]
        x = (x * (levels - 1)).round() / (levels - 1)
    elif word == "low-light":
        x = x * (0.5 - 0.42 * amount)
        x = (x + 0.05 * amount * noise()).clamp(0, 1)
    elif word == "colour-cast":
        gains = torch.tensor([1.0, 1 - 0.5 * amount, 1 - 0.9 * amount][: x.shape[1]])
        x = x * gains.to(x).view(1, -1, 1, 1)
    elif word == "bars":
        every = max(2, round(width / 8))
        columns = torch.arange(width) % every < every * (0.15 + 0.5 * amount)
        x = torch.where(columns.to(x.device), 0.5, x)
    elif word == "uniform-noise":
        x = noise(torch.rand)
    elif word == "gaussian-images":
        x = (0.5 + 0.25 * noise()).clamp(0, 1)
    elif word == "inverted":
        x = 1 - x
    elif word == "black":
        x = torch.zeros_like(x)
    elif word == "shuffled-patches":
        side = 4
        patches = F.unfold(
            x, (height // side, width // side), stride=(height // side, width // side)
        )
        x = F.fold(
            patches[:, :, torch.randperm(side * side, generator=generator).to(x.device)],
            (height, width), (height // side, width // side),
            stride=(height // side, width // side),
        )  # fmt: skip
    return (x * 255).round().to(torch.uint8)


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """What is done to a model; its state is kept after so many images were ``seen``."""

    statistics: str
    recipe: str
    rate: float = 0.0
    seen: tuple[int, ...] = (0,)


def treatments(
    loaded: LoadedModel, images: int, learn: Learn, draw: random.Random
) -> Iterator[Treatment]:
    """New statistics, the learning that is followed for long, and others at the rates."""
    layers = batch_norm_layers(loaded.model)
    most = min(10 * images, max(3 * images, 2000))
    choices = [
        Treatment(statistics=statistics, recipe=recipe, rate=rate, seen=(most,))
        for statistics, rates in RATES.items()
        if layers or statistics == "source"
        for recipe in ("ent", "rpl")
        if (statistics, recipe) != ("mixture", "rpl")
        for rate in rates
    ]
    drawn = choices if learn == "all" else draw.sample(choices, min(SOME, len(choices)))
    for statistics in RATES:
        if layers and (statistics == "batch" or (statistics == "mixture" and learn != "none")):
            yield Treatment(statistics=statistics, recipe="bn")
        if learn == "none":
            continue
        if statistics == "source" or (layers and statistics == "batch"):
            many = (loaded.class_count or 0) > 100
            recipe, rate = FOLLOWED[statistics, many]
            yield Treatment(
                statistics=statistics,
                recipe=recipe,
                rate=rate,
                seen=tuple(images * k for k in EPOCHS if k == 1 or images * k <= LONGEST),
            )
        yield from (each for each in drawn if each.statistics == statistics)


def run_case(
    bank: Bank, case: Case, learn: Learn
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The states of a case, and what showed of each, image by image."""
    images, labels = bank.of(case)
    loaded, reference = bank.model(case.model), bank.reference(case.model)
    source = copy_model(loaded.model).to(bank.device).eval()
    row, source_classes, unadapted, plain = signals(source, images, labels, reference)
    n, shown = len(images), len(plain.right)
    states = [
        {"statistics": "source", "recipe": "none", "rate": 0.0, "seen": 0, "shown": shown, **row}
    ]
    kept = [plain.kept(plain, plain)]
    start, seen_as = {"source": plain}, [unadapted]
    for treatment in treatments(loaded, n, learn, random.Random(case.name)):
        statistics, recipe = treatment.statistics, treatment.recipe
        learner = learner_of(loaded, statistics, recipe, treatment.rate, bank.device, n)
        seen = 0
        for most in treatment.seen:
            while seen < most:
                order = torch.randperm(n, generator=torch.Generator().manual_seed(seen))
                for rows in order.to(bank.device).split(learner.batch_size):
                    if seen < most:
                        if len(rows) == learner.batch_size:  # so that steps can be replayed
                            learner.step(images[rows])
                        seen += len(rows)
            row, evidence, found = state_of(learner, images, labels, reference, source_classes)
            if recipe == "bn":
                start[statistics] = found
            seen_as.append(evidence)
            kept.append(found.kept(plain, start[statistics]))
            states.append(
                {
                    "statistics": statistics,
                    "recipe": recipe,
                    "rate": treatment.rate,
                    "seen": seen,
                    "shown": shown,
                    **row,
                }
            )
        learner.release()
    add_signs(states, seen_as)
    return states, {name: np.stack([each[name] for each in kept]) for name in kept[0]}


def learner_of(
    loaded: LoadedModel, statistics: str, recipe: str, rate: float, device: torch.device, n: int
) -> Learner:
    """A learner that starts at the source."""
    options: dict[str, Any] = {"normalization": statistics, "batch_size": BATCH}
    if recipe != "bn":
        options["optimizer.lr"] = rate * min(BATCH, n) / BATCH
    on_gpu, half = device.type == "cuda", halves(device)
    # On a CPU the backward pass of group norm fails in this layout.
    grouped = any(isinstance(module, nn.GroupNorm) for module in loaded.model.modules())
    learner = Learner(
        copy_model(loaded.model).to(device),
        get_recipe(recipe, options),
        batch_size=min(BATCH, n),
        # To capture a step costs as much as a hundred of them.
        acceleration=Acceleration(
            channels_last=on_gpu or not grouped,
            half=half,
            fused=on_gpu,
            recorded=on_gpu and n > 2500,
        ),
    )
    learner.network.unverified = False
    return learner


@torch.no_grad()
def state_of(
    learner: Learner,
    images: Tensor,
    labels: Tensor,
    reference: Mapping[str, float],
    source_classes: Tensor,
) -> tuple[dict[str, Any], Evidence, Shown]:
    """What shows of the plain model that would be returned now; learning can continue."""
    control = learner.statistics
    buffers = control.buffers()
    with_batches = torch.zeros_like(source_classes)
    gap: list[float] = []
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    if learner.recipe.normalization.adapts and control.layers:
        pool = control.pool()
        for rows in order.to(images.device).split(learner.batch_size):
            with_batches[rows] = learner.logits(images[rows]).argmax(dim=1)
        pool.close()
        gap = control.distances(pool)
        control.write(pool, weight=learner.recipe.normalization.export_weight(learner.batch_size))
    control.release()
    row, predicted, evidence, found = signals(learner.model, images, labels, reference)
    control.load_buffers(buffers)
    row["drift"] = drift(learner)
    row["agree_source"] = float((predicted == source_classes).float().mean())
    if gap:
        row["agree_batches"] = float((predicted == with_batches).float().mean())
        places = [len(gap) * part // 8 for part in range(8)]
        row["gap"] = [round(gap[place], 3) for place in (*places, -1)]
        row["gap_mean"] = round(float(np.mean(gap)), 3)
    return row, evidence, found


def run_and_table(
    doc: str, run: Callable[[argparse.Namespace], None], table: Callable[[Any], Table]
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """A parser with the commands "run" and "table", and that of the first, for more options."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one, two = commands.add_parser("run"), commands.add_parser("table")
    for each in (one, two):
        each.add_argument("--results", type=Path, required=True)
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--models", nargs="+", choices=list(MODELS), default=["resnet50"])
    one.add_argument("--seconds", type=float, default=1e9)
    one.set_defaults(call=run)
    two.set_defaults(call=lambda args: print(table(read(args.results)).text()))
    return parser, one


def read(path: Path) -> list[dict[str, Any]]:
    """The stored cases of a file, which may be compressed."""
    if not path.exists():
        return []
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [json.loads(line) for line in text.splitlines()]


def rounded(value: Any) -> Any:
    """Four digits are more than a few hundred images can tell."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def pack(args: argparse.Namespace) -> None:
    """Write the decoded photos beside their folders: many processes need not decode them."""
    for name in ("photos", "imagenette"):
        pixels, labels = Bank(args.data, torch.device("cpu")).images(name, "resnet50")
        np.savez(args.data / f"{name}.npz", images=pixels.permute(0, 2, 3, 1), labels=labels)


def stem(half: str, case: Case) -> str:
    """The name of a file of evidence."""
    return f"{half} {case.name}".replace(" ", "_").replace("/", "-") + ".npz"


def gather(args: argparse.Namespace) -> None:
    """Write the cases of several files into one, in the order of the list."""
    found: dict[str, dict[str, Any]] = {}
    for path in args.results:
        for row in read(path):
            found.setdefault(json.dumps(row["case"]), row)
    rows = []
    for half, case in wanted(args):
        name = json.dumps(asdict(case))
        if name not in found:
            continue
        row = found[name]
        for folder in args.evidence:
            if (path := folder / stem(half, case)).exists():
                with np.load(path) as kept:
                    evidence = dict(kept)
                check_evidence(evidence, row["states"], path)
                classes = 1000 if MODELS[case.model][0] == "photos" else 10
                states = range(len(row["states"]))
                add_signs(row["states"], [evidence_of(evidence, k, classes) for k in states])
                break
        rows.append(rounded(row))
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    args.out.write_bytes(gzip.compress(lines.encode(), mtime=0))
    print(f"{len(rows)} cases")


def check_evidence(
    evidence: Mapping[str, np.ndarray], states: Sequence[Mapping[str, Any]], path: Path
) -> None:
    """Refuse what was kept of another run."""
    p = 1 / (1 + np.exp(-evidence["own/plain"] / 10.0))
    confidence = [state["confidence"] for state in states]
    if len(p) != len(states) or not np.allclose(p.mean(axis=1), confidence, atol=0.02):
        raise ValueError(f"expected the evidence of these {len(states)} states in {path}")


def wanted(args: argparse.Namespace) -> Iterator[tuple[str, Case]]:
    """The cases of the halves asked for, and of some models where these are named."""
    for half in args.half:
        for case in cases(half):
            if not args.models or case.model in args.models:
                yield half, case


def run(args: argparse.Namespace) -> None:
    """Run what is missing, for so many seconds."""
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    bank, began = Bank(args.data, device), time.monotonic()
    args.results.mkdir(parents=True, exist_ok=True)
    known = {
        json.dumps(row["case"])
        for folder in (args.results, *args.known)
        for path in folder.glob("*.jsonl*")
        for row in read(path)
    }
    part, parts = map(int, args.part.split("/"))
    left = list(wanted(args))
    if args.most_images:
        left = [
            (half, replace(case, images=min(case.images, args.most_images))) for half, case in left
        ]
    if args.shuffle:
        random.Random(0).shuffle(left)
    left = [
        (half, case) for half, case in left[part::parts] if json.dumps(asdict(case)) not in known
    ]
    name = "-".join([*(args.models or []), str(part)])
    for number, (half, case) in enumerate(left, start=1):
        if time.monotonic() - began > args.seconds:
            print(f"{len(left) - number + 1} cases are left: run again to continue")
            return
        at = time.monotonic()
        states, kept = run_case(bank, case, args.learn)
        if args.evidence:
            args.evidence.mkdir(parents=True, exist_ok=True)
            kept_at = args.evidence / stem(half, case)
            np.savez_compressed(kept_at, **cast("dict[str, Any]", kept))
        with (args.results / f"{half}-{name}.jsonl").open("a") as file:
            file.write(json.dumps(rounded({"case": asdict(case), "states": states})) + "\n")
        errors = " ".join(f"{state['error']:.0f}" for state in states)
        print(
            f"{number}/{len(left)} {half} {case.name}: {errors} [{time.monotonic() - at:.1f} s]",
            flush=True,
        )


def main() -> None:
    """Run, list, pack or gather."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one, two, four = (commands.add_parser(name) for name in ("run", "list", "gather"))
    for each in (one, two, four):
        each.add_argument("--half", choices=("dev", "test"), nargs="+", required=True)
        each.add_argument("--models", nargs="+", choices=list(MODELS))
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--results", type=Path, required=True, help="a folder: a file a half and part")
    one.add_argument("--known", type=Path, nargs="*", default=[], help="folders not to repeat")
    one.add_argument("--part", default="0/1", help="which part of the cases: 0/3, 1/3, 2/3")
    one.add_argument("--shuffle", action="store_true", help="take the cases in mixed order")
    one.add_argument("--seconds", type=float, default=1e9)
    one.add_argument("--device")
    one.add_argument(
        "--learn",
        choices=get_args(Learn),
        default="all",
        help="the default way, and at all or some of the rates; or not at all",
    )
    one.add_argument("--most-images", type=int, help="no case of more images than this")
    one.add_argument("--evidence", type=Path, help="a folder for what shows image by image")
    one.set_defaults(call=run)
    three = commands.add_parser("pack")
    three.add_argument("--data", type=Path, required=True)
    three.set_defaults(call=pack)
    four.add_argument("--results", type=Path, nargs="+", required=True)
    four.add_argument("--out", type=Path, required=True)
    four.add_argument(
        "--evidence", type=Path, nargs="*", default=[], help="folders to take all signs from anew"
    )
    four.set_defaults(call=gather)
    two.set_defaults(call=lambda args: print(*(c.name for _, c in wanted(args)), sep="\n"))
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
