"""adapt(): one call from a trained model and unlabelled images to an adapted model."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from acclimate import parallel
from acclimate._version import __version__
from acclimate.acceleration import check_speed, choose
from acclimate.adaptation.auto import AUTO, PATIENCE, make_plan, stored_plan
from acclimate.adaptation.folder import RunFolder
from acclimate.adaptation.passes import Passes
from acclimate.adaptation.run import AdaptationRun
from acclimate.callbacks import Callback, check_callbacks
from acclimate.checkpoint import fingerprint
from acclimate.data import ImageSource, Preprocessing, batch_count, batches, open_images
from acclimate.data.labels import BY_INDEX, NO_LABELS, LabelsFrom
from acclimate.data.shift import Shift
from acclimate.data.shifted import ShiftedSource
from acclimate.errors import AcclimateError, unknown_name
from acclimate.guard.guard import Guard, make_guard, warn_of_temperatures
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models import LoadedModel, as_loaded
from acclimate.models.device import choose_device, copy_model, floating_dtype
from acclimate.models.layers import batch_norm_layers
from acclimate.models.outputs import checked_logits
from acclimate.models.record import Metadata
from acclimate.parts.normalization import BatchStatistics
from acclimate.presets import scaling_note, tuned_recipe
from acclimate.recipe import Recipe
from acclimate.result import AdaptationResult, RunRecord
from acclimate.text import Keep, Score, Speed, printable

__all__ = ["adapt"]

_WORTH_A_NOTE = 2.0  # seconds


@torch.inference_mode(False)
def adapt(
    model: nn.Module | LoadedModel,
    data: Any,
    recipe: str | Recipe = AUTO,
    *,
    options: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    labels: LabelsFrom | None = None,
    preprocessing: Preprocessing | None = None,
    shift: str | Shift | None = None,
    guard: str | Guard = "rollback",
    keep: Keep | None = None,
    score: Score = "epochs",
    estimate: bool = True,
    out: str | Path | None = None,
    checkpoint_every: float = 30.0,
    device: str | torch.device | None = None,
    seed: int = 0,
    speed: Speed = "auto",
    inplace: bool = False,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
) -> AdaptationResult:
    """Adapt a classifier to unlabelled images.

    In a process group (``torchrun``) all processes make the same call: each batch is shared out
    over them, and all get the result one process would get. The first one writes the files.

    Args:
        model: a module that returns logits (or an object with them), or what ``models.load`` gave.
        data: a folder of images, an ``.npz``/``.npy`` file, ``.tar`` shards, an array, a tensor, a
            Dataset, a DataLoader, or what ``acclimate.data.open_dataset`` gave. Labels found in
            it only score the result; nothing learns from them.
        recipe: "auto" decides from the images which statistics to use and how to learn, and returns
            the best state by the estimated error; else a name (see ``acclimate.list_recipes``) or a
            Recipe.
        options: changes to the recipe, ``{"optimizer.lr": 1e-4, "teacher": "epoch", "epochs": 3}``.
        batch_size: images per step; the learning rate follows it linearly.
        labels: true classes, for scoring, when ``data`` does not bring them: one index per image,
            or a table with the columns file and class. "index" takes sub-folders numbered by class
            for labels too, "none" takes no sub-folders for labels.
        preprocessing: how the model wants uint8 images; taken from its own record when it has one.
        shift: a corruption to apply to clean images on the fly, ``"imagenet/fog:3"``.
        guard: what to do when adaptation goes wrong: "rollback", "stop", "warn", "observe", "off",
            or a :class:`Guard` with other thresholds.
        keep: "last" state, or the "best" epoch by the estimated error (by a score that needs no
            labels, without ``estimate``); "best" for "auto", else "last".
        score: the predictions after all "epochs", or at the "end" alone, which saves a forward
            pass over the images in every epoch but the last.
        estimate: the error without labels and the temperature of calibrated probabilities; costs
            ten forward passes over at most 1,000 of the images. Without, the verdict is "unclear".
        out: a folder for checkpoint and result. The same call resumes where it was killed.
        checkpoint_every: seconds between checkpoints.
        device: where to run; CUDA when there is one, else the CPU.
        seed: order of the images and every random draw. Same seed, same result.
        speed: "auto" runs the model in bfloat16 and channels last where that is faster and gives
            the same predictions, "max" tries it everywhere, "exact" never: the same call then
            gives the same bits.
        inplace: adapt the model itself instead of a copy.
        progress: show progress bars on stderr.
        callbacks: called after every step and epoch and with what the guard saw, loggers among
            them (see :mod:`acclimate.callbacks`).

    >>> import acclimate, torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    >>> result = acclimate.adapt(model, torch.rand(64, 3, 2, 2), "ent", progress=False)
    >>> result.predictions.shape, result.history.epochs[0].before_update.images
    (torch.Size([64]), 64)
    """
    with parallel.together():  # a mistake in one process must not leave the others waiting
        loaded = as_loaded(model, preprocessing)
        module = loaded.model
        if not 0 <= seed < 2**63:
            raise AcclimateError(f"expected a seed >= 0 and < 2**63, got {seed}")
        auto = recipe == AUTO
        keep = keep or ("best" if auto else "last")
        if keep not in get_args(Keep):
            raise unknown_name("choice for keep", str(keep), get_args(Keep))
        if score not in get_args(Score):
            raise unknown_name("choice for score", str(score), get_args(Score))
        if (keep, score) == ("best", "end"):
            raise AcclimateError("keep='best' chooses among the epochs: it needs score='epochs'")
        check_speed(speed)
        guard, called = make_guard(guard), check_callbacks(callbacks)
        chosen, given = get_recipe("ent" if auto else recipe), dict(options or {})
        chosen.with_options(given).check(module)  # before an hour of reading images
        where = choose_device(device)
        images = open_images(
            data,
            preprocessing=loaded.preprocessing,
            labels=labels,
            classes=loaded.classes,
            shift=shift,
            device=where,
            progress=progress and parallel.is_main(),
        )
        notes = _label_notes(images)
        if progress and parallel.is_main() and isinstance(data, (str, Path)):
            announce_labels(images)
        weights = fingerprint(module.state_dict())
        module = (module if inplace else copy_model(module)).to(where).eval()
        class_names = loaded.classes.names if loaded.classes else None
        # A mistake shows before the folder is claimed.
        image = _try_out(module, images, class_names, where)
        tuning: dict[str, Any] = {
            "model_name": loaded.name,
            "images": len(images),
            "model": module,
            "classes": loaded.class_count,
        }
        plan = None
        if auto:
            plan = None if out is None else stored_plan(out, weights, images.fingerprint(), given)
            if plan is None:
                passes = Passes(
                    images,
                    batch_size=_batch_size(chosen.with_options(given), module, images, batch_size),
                    device=where,
                    dtype=floating_dtype(module),
                    show_progress=progress,
                )
                plan = make_plan(passes, **tuning, options=given, estimate=estimate, seed=seed)
            if progress and parallel.is_main():
                print(plan, file=sys.stderr)
            chosen = plan.recipe
            notes += plan.reasons
        elif isinstance(recipe, str):
            chosen, tuned = tuned_recipe(chosen, given, **tuning)
            notes += tuned
        else:  # a Recipe of the user's own is complete
            chosen = chosen.with_options(given)
        size = _batch_size(chosen, module, images, batch_size)
        if guard.action != "off":
            warn_of_temperatures(chosen)
        record = RunRecord(
            model=loaded.name,
            weights=weights,
            recipe=chosen,
            options=given if plan else {},
            plan=plan.reasons if plan else (),
            images=images.fingerprint(),
            count=len(images),
            shift=str(images.shift) if isinstance(images, ShiftedSource) else None,
            preprocessing=images.preprocessing.describe() if images.preprocessing else None,
            batch_size=size,
            seed=seed,
            guard=guard,
            keep=keep,
            score=score,
            estimate=estimate,
            device=where.type,
            speed=speed,
            versions={
                "acclimate": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        )
    if parallel.active():
        parallel.same(record.to_dict(), "processes in a group adapt one model to the same images")
    held = None if out is None else RunFolder(out, record, every=checkpoint_every)
    with held or nullcontext() as folder:
        finished = folder.result(module, class_names) if folder else None
        if finished is not None:
            return finished

        count = len(class_names) if class_names else None
        learner = Learner(module, chosen, batch_size=size, seed=seed, classes=count)
        learner.cost = 0 if plan is None else plan.cost
        passes = Passes(
            images,
            batch_size=size,
            device=where,
            dtype=floating_dtype(module),
            show_progress=progress,
            shared=True,
        )
        run = AdaptationRun(
            learner,
            passes,
            guard=guard,
            keep=keep,
            score=score,
            estimate=estimate,
            patience=PATIENCE if auto else None,
            seed=seed,
            write_checkpoint=folder.write_checkpoint if folder else None,
            callbacks=called,
        )
        resumed = folder is not None and folder.resume(run.load_state)
        if not (resumed or parallel.active()):  # processes must not choose differently
            batch = image.expand(size, *image.shape[1:])
            steps = chosen.epochs * batch_count(len(images), size)
            learner.network.accelerate(choose(module, batch, speed=speed, steps=steps))
        try:
            predictions, verdict = run.execute()
        except BaseException:
            learner.release()  # a model adapted in place must stay usable
            raise
        before = run.source
        result = AdaptationResult(
            model=learner.model,
            history=run.history,
            verdict=verdict,
            predictions=predictions.classes,
            confidence=predictions.confidence,
            probabilities=predictions.probability,
            predictions_before=before.classes if before else None,
            confidence_before=before.confidence if before else None,
            probabilities_before=before.probability if before else None,
            cost=None if parallel.active() else learner.cost / len(images),
            names=images.names,
            class_names=class_names,
            skipped=len(images.skipped),
            left_out=images.skipped,
            notes=notes + _notes(learner),
            record=replace(record, acceleration=str(learner.ran)),
            metadata=Metadata(
                loaded.name, loaded.classes, images.preprocessing or loaded.preprocessing
            ),
        )
        if folder:
            folder.finish(result)
        return result


def _batch_size(recipe: Recipe, model: nn.Module, images: ImageSource, asked: int | None) -> int:
    if asked is not None and asked < 1:
        raise AcclimateError(f"expected batch_size >= 1, got {asked}")
    size = min(asked or recipe.batch_size, len(images))
    needs_batches = isinstance(recipe.normalization, BatchStatistics) and batch_norm_layers(model)
    if size == 1 and needs_batches:
        raise AcclimateError(
            f"one image has no batch statistics (batch_size {asked or recipe.batch_size}, "
            f"{len(images)} image(s)); use batches of two and more, or the source's statistics "
            "as a prior: --set normalization=mixture (options={'normalization': 'mixture'}), "
            "or recipe bn-prior"
        )
    return size


def _try_out(
    model: nn.Module,
    images: ImageSource,
    class_names: Sequence[str] | None,
    device: torch.device,
) -> Tensor:
    """Run the model on one image: does it take these images, do classes and labels fit?"""
    batch = next(iter(batches(images, batch_size=1, order=torch.tensor([0]), device=device)))
    classes = checked_logits(model, batch.images.to(floating_dtype(model))).shape[1]
    if class_names is not None and len(class_names) != classes:
        raise AcclimateError(
            f"expected as many class names as the model has outputs ({classes}), "
            f"got {len(class_names)}"
        )
    if images.scoring is not None:
        images.scoring.check(classes)
    highest = -1 if images.labels is None else int(images.labels.max())
    if highest >= classes:
        raise AcclimateError(
            f"expected labels below the model's {classes} classes, got {highest}; "
            "is this the model for these classes?"
        )
    return batch.images.to(floating_dtype(model))


def announce_labels(images: ImageSource) -> None:
    """Say on stderr that sub-folders are taken for labels, where they are."""
    if images.labels is not None and images.class_names:
        print(
            f"labels: sub-folders ({_some(images.class_names)}) are taken for classes, only to "
            f"score by; --no-labels (labels={NO_LABELS!r}) takes none",
            file=sys.stderr,
        )


def _label_notes(images: ImageSource) -> list[str]:
    names = images.class_names
    if images.labels is not None or not names:
        return []
    if all(name.isdigit() for name in names):
        return [
            f"sub-folders that are numbers ({_some(names)}) are not taken for classes unless asked "
            f"for: --labels {BY_INDEX} (labels={BY_INDEX!r})"
        ]
    return [f"sub-folders ({_some(names)}) match no class of the model: nothing is scored"]


def _some(names: Sequence[str]) -> str:
    return ", ".join([*map(printable, names[:3]), *(["..."] if len(names) > 3 else [])])


def _notes(learner: Learner) -> list[str]:
    recipe, notes = learner.recipe, []
    if recipe.learns and recipe.selector.changes_architecture:
        notes.append("the model returned has new layers (keys with acclimate_adapter)")
    if learner.ran.changes:
        notes.append(f"the model ran in {learner.ran}; --speed exact (speed='exact') does not")
    if learner.ran.fused and learner.network.preparation > _WORTH_A_NOTE:
        notes.append(
            f"compiling and checking the faster kernels took {learner.network.preparation:.1f} s "
            "(kernels are compiled once per machine)"
        )
    if parallel.active():
        notes.append(f"each batch was shared out over {parallel.world()} processes")
    return notes + scaling_note(learner)
