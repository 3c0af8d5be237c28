"""A model over all parts of a data set, each part's result kept as soon as it is there."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from acclimate._version import __version__
from acclimate.bench.images import images_digest
from acclimate.bench.scoring import Evaluation, Trials
from acclimate.bench.shifts import CLEAN, Part
from acclimate.checkpoint import fingerprint
from acclimate.data import ImageSource
from acclimate.data.shift import Shift, plain_shift
from acclimate.errors import AcclimateError
from acclimate.files import json_writer, write_files
from acclimate.methods.registry import get_recipe
from acclimate.metrics import (
    CORRUPTIONS,
    DOMAINS,
    ErrorCounts,
    ErrorTable,
    Figure,
    RelativeError,
    confusions,
    mce,
    mde,
    mean_error,
    most_predicted,
)
from acclimate.metrics.mean import by_seeds, mean_over_seeds
from acclimate.models import LoadedModel
from acclimate.models.device import choose_device, copy_model

__all__ = ["Report", "evaluate_parts"]

_MOST_PREDICTED = 5
_CONFUSIONS = 10
_BATCH_SIZE = 128


def evaluate_parts(
    model: LoadedModel,
    parts: Sequence[Part],
    *,
    data: Mapping[str, Any],
    recipe: str | None = None,
    options: Mapping[str, Any] | None = None,
    clean: ImageSource | None = None,
    batch_size: int | None = None,
    out: str | Path | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Report:
    """Score a model on every part, unadapted or adapted to each part from the source anew.

    Args:
        model: what ``models.load`` gave.
        parts: from `dataset_parts` or `image_parts`.
        data: what is evaluated, for the record: ``{"dataset": "imagenet-c", "root": ...}``.
        recipe: how to adapt; None scores it unadapted.
        options: changes to the recipe.
        clean: labelled source images; with a recipe, what is forgotten of them is measured too.
        batch_size: images at a time; None is the recipe's, or 128.
        out: a folder for ``evaluation.json``; the same call resumes where it was stopped.
        device: where to run; CUDA when there is one.
        seed: of the adaptation.
        progress: show bars on stderr.
    """
    chosen = None if recipe is None else get_recipe(recipe, dict(options or {}))
    identity = {
        "model": model.name,
        "weights": fingerprint(model.model.state_dict()),
        "data": dict(data),
        "recipe": None if chosen is None else chosen.to_dict(),
        "clean": None if clean is None else images_digest(clean),
        "batch_size": batch_size,
        "seed": seed,
        "preprocessing": model.preprocessing.describe() if model.preprocessing else None,
        "acclimate": __version__,
        "torch": torch.__version__,
    }
    if clean is not None and clean.labels is None:
        raise AcclimateError("expected labelled clean images to measure forgetting on, got none")
    file = ResultFile(None if out is None else Path(out).expanduser(), identity)
    job = _Job(
        model=model,
        recipe=recipe,
        options=dict(options or {}),
        clean=clean,
        batch_size=batch_size,
        seed=seed,
        trials=Trials(device=choose_device(device), progress=progress),
    )
    for part in tqdm(parts, unit="part", disable=not progress or len(parts) == 1):
        if file.has(part.name):
            _check_again(part, file.results[part.name])
        else:
            file.add(part.name, job.run(part))
    return Report(identity, [file.results[part.name] for part in parts])


def _check_again(part: Part, result: dict[str, Any]) -> None:
    """Refuse to show an old result for other images, where looking costs little."""
    looks_quickly = part.shift is None or part.shift.preset or part.shift.severity is None
    if looks_quickly and result["fingerprint"] != images_digest(part.open()):
        raise AcclimateError(
            f"the result kept for {part.name} is of other images or labels; choose another --out"
        )


@dataclass(frozen=True)
class _Job:
    model: LoadedModel
    recipe: str | None
    options: Mapping[str, Any]
    clean: ImageSource | None
    batch_size: int | None
    seed: int
    trials: Trials

    def run(self, part: Part) -> dict[str, Any]:
        """Open a part, adapt if asked to, and score."""
        started = time.perf_counter()
        images, shift = part.open(), part.shift or Shift(name=CLEAN)
        record: dict[str, Any] = {
            "shift": shift.name,
            "severity": shift.severity,
            "preset": shift.preset,
        }
        size = _BATCH_SIZE if self.batch_size is None else self.batch_size
        model = self.model.model
        if self.recipe is not None:
            model, adapted = self._adapted(images, self.recipe, size)
            record |= adapted
        scores = self.trials.evaluate(model, images, batch_size=size, title=part.name)
        record |= {**scores.to_dict(), **self._answers(scores, images)}
        record["fingerprint"] = images_digest(images)
        record["seconds"] = round(time.perf_counter() - started, 3)
        return record

    def _adapted(
        self, images: ImageSource, recipe: str, size: int
    ) -> tuple[torch.nn.Module, dict[str, Any]]:
        source = replace(self.model, model=copy_model(self.model.model))
        result = self.trials.adapt(
            source,
            images,
            recipe,
            options=self.options,
            batch_size=self.batch_size,
            seed=self.seed,
        )
        epochs = result.history.epochs
        record: dict[str, Any] = {
            "unadapted_error": result.error_before,
            "before_update_error": epochs[0].before_update.error if epochs else None,
            "after_epoch_errors": [e.after_epoch.error if e.after_epoch else None for e in epochs],
            "verdict": result.verdict.word,
            "notes": result.notes,
        }
        if self.clean is not None:
            record["forgetting"] = self.trials.forgetting(
                self.model.model, copy_model(result.model), self.clean, key="clean", batch_size=size
            )
        return result.model, record

    def _answers(self, scores: Evaluation, images: ImageSource) -> dict[str, Any]:
        """For a data set that is scored through a map: how many predictions it has a label for."""
        scoring = images.scoring
        if scoring is None or scoring.label_of is None:
            return {}
        names = self.model.classes.names if self.model.classes else None
        outputs = names or [str(number) for number in range(len(scoring.label_of))]
        most = most_predicted(
            scores.predictions, outputs, _MOST_PREDICTED, label_of=scoring.label_of
        )
        record: dict[str, Any] = {
            **scores.mapped(scoring.label_of),
            "most_predicted": [vars(each) for each in most.classes],
        }
        asked = images.class_names or ()
        if len(asked) == int(scoring.label_of.max()) + 1:
            found = confusions(
                scores.predictions, scores.labels, scoring.label_of, asked, k=_CONFUSIONS
            )
            record["confusions"] = [vars(pair) for pair in found.pairs]
            record["answered_as_another"] = list(found.off_diagonal)
        return record


RESULTS = "evaluation.json"


class ResultFile:
    """``evaluation.json``: what was evaluated, and each part's result. Without a folder, memory."""

    def __init__(self, folder: Path | None, identity: dict[str, Any]) -> None:
        self._path = None if folder is None else folder / RESULTS
        self._identity = identity
        self.results: dict[str, dict[str, Any]] = {}
        if self._path is not None:
            self._claim(self._path)

    def _claim(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8") if path.exists() else None
            there = None if text is None else json.loads(text)
            if there is not None:
                self.results = {part["name"]: part["result"] for part in there["parts"]}
                differing = [k for k, v in self._identity.items() if there["run"].get(k) != v]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AcclimateError(
                f"{path} cannot be used: {error}; choose another folder"
            ) from error
        if there is not None and differing:
            key = differing[0]
            raise AcclimateError(
                f"{path} holds another evaluation ({key}: {there['run'].get(key)!r:.60}, now "
                f"{self._identity[key]!r:.60}); choose another folder"
            )

    def has(self, name: str) -> bool:
        """Whether a part was done before."""
        return name in self.results

    def add(self, name: str, result: dict[str, Any]) -> None:
        """Keep a part's result; on the disk, if there is a folder, before this returns."""
        self.results[name] = result
        if self._path is not None:
            parts = [{"name": each, "result": kept} for each, kept in self.results.items()]
            write_files({self._path: json_writer({"run": self._identity, "parts": parts})})


@dataclass(frozen=True)
class Report:
    """An evaluation: what was evaluated (``identity``), and a record for each part."""

    identity: dict[str, Any]
    parts: list[dict[str, Any]]

    def counts(self) -> list[ErrorCounts]:
        """Wrong predictions and images of each part, top-1 and, where it was counted, top-5."""
        return [_counts(part) for part in self.parts]

    def table(self) -> ErrorTable | None:
        """Errors by corruption and severity; None where there are no severities."""
        if any(part["severity"] is None for part in self.parts):
            return None
        cells = zip(self.parts, self.counts(), strict=True)
        return ErrorTable({(part["shift"], part["severity"]): counts for part, counts in cells})

    def error(self, *, interval: float | None = None) -> Figure:
        """The mean over shifts of the mean over severities, in percent."""
        table = self.table()
        if table is not None:
            return table.mean_error(interval=interval)
        names = [part["shift"] for part in self.parts]
        return mean_error(dict(zip(names, self.counts(), strict=True)), interval=interval)

    def relative_error(self, *, interval: float | None = None) -> RelativeError | None:
        """mCE or mDE, where the parts are all that these are the mean of; else None.

        They compare with AlexNet on ImageNet-C and ImageNet-D, and are meant for these alone.
        """
        data, table = self.identity["data"].get("dataset"), self.table()
        made_by_imagenet = all(part.get("preset") == "imagenet" for part in self.parts)
        if table is not None and (data == "imagenet-c" or made_by_imagenet):
            complete = set(map(plain_shift, table.corruptions()))
            if complete == set(CORRUPTIONS) and len(table.cells) == 5 * len(CORRUPTIONS):
                return mce(_by_shift(self.parts, self.counts()), interval=interval)
        if data == "imagenet-d" and {part["shift"] for part in self.parts} == set(DOMAINS):
            errors = {p["shift"]: c for p, c in zip(self.parts, self.counts(), strict=True)}
            return mde(errors, interval=interval)
        return None

    def top5_error(self, *, interval: float | None = None) -> Figure | None:
        """As `error`, but of the five highest predictions; None where it was not counted."""
        if any("wrong_top5" not in part for part in self.parts):
            return None
        parts = [{**part, "wrong": part["wrong_top5"]} for part in self.parts]
        return Report(self.identity, parts).error(interval=interval)

    def mean_of(self, key: str, *, unit: str = "%") -> Figure | None:
        """The mean over shifts of the mean over severities of a number in the records.

        None where a part lacks it.
        """
        if any(part.get(key) is None for part in self.parts):
            return None
        # Two draws of a shift at one severity are two parts.
        found = by_seeds((0, part["shift"], n, part[key]) for n, part in enumerate(self.parts))
        images = sum(part["labelled"] for part in self.parts)
        return Figure(value=mean_over_seeds(found) or 0.0, images=images, unit=unit)

    def to_dict(self, *, interval: float | None = None) -> dict[str, Any]:
        """Plain values, as ``--json`` prints them."""
        relative = self.relative_error(interval=interval)
        metric = {}
        if relative is not None:
            details = {"parts": dict(relative.parts), "notes": list(relative.notes)}
            metric = {relative.metric: {**vars(relative.figure), **details}}
        return {
            "run": self.identity,
            "error": vars(self.error(interval=interval)),
            **metric,
            "parts": self.parts,
        }


def _counts(part: dict[str, Any]) -> ErrorCounts:
    top5 = part.get("wrong_top5")
    return ErrorCounts(
        images=part["images"],
        answers=1 if top5 is None else 5,
        labelled=torch.tensor(part["labelled"]),
        wrong_top1=torch.tensor(part["wrong"]),
        wrong_top5=torch.tensor(top5 or 0),
    )


def _by_shift(
    parts: Sequence[dict[str, Any]], counts: Sequence[ErrorCounts]
) -> dict[str, list[ErrorCounts]]:
    together: dict[str, list[ErrorCounts]] = {}
    for part, count in sorted(
        zip(parts, counts, strict=True), key=lambda pair: pair[0]["severity"]
    ):
        together.setdefault(part["shift"], []).append(count)
    return together
