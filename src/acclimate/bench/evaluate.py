"""One model over all shifts of a data set: a plan of one model and one recipe, run into a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tqdm.auto import tqdm

from acclimate.bench.job import UNADAPTED, Job, Value, Weights
from acclimate.bench.plan import split_of, typed_options
from acclimate.bench.record import Result, plain
from acclimate.bench.shifts import CLEAN, check_shifts, job_shifts
from acclimate.bench.store import Store
from acclimate.bench.worker import Worker
from acclimate.data import Shift
from acclimate.data.benchmarks import find_dataset
from acclimate.data.benchmarks.own_images import FOLDER
from acclimate.data.shift import plain_shift
from acclimate.errors import AcclimateError
from acclimate.files import json_writer, write_files
from acclimate.lock import claimed
from acclimate.methods.registry import get_recipe
from acclimate.metrics import (
    CORRUPTIONS,
    DOMAINS,
    ErrorCounts,
    ErrorTable,
    Figure,
    RelativeError,
    mce,
    mde,
    mean_error,
)
from acclimate.metrics.mean import by_seeds, mean_over_seeds
from acclimate.models import LoadedModel
from acclimate.presets import tuned_recipe
from acclimate.text import first_difference, user_path

__all__ = ["EVALUATION", "RESULTS", "EvaluationReport", "evaluate_shifts", "evaluated_shifts"]

RESULTS, EVALUATION = "results.db", "evaluation.json"


def evaluate_shifts(
    model: LoadedModel,
    root: str | Path,
    *,
    dataset: str = FOLDER,
    shifts: Sequence[str] = (),
    split: str | None = None,
    recipe: str = UNADAPTED,
    options: Mapping[str, Value] | None = None,
    clean: str | Path | None = None,
    batch_size: int | None = None,
    weights: str | Path | None = None,
    out: str | Path | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
    incomplete: bool = False,
    progress: bool = True,
) -> EvaluationReport:
    """Score a model on every shift, unadapted or adapted to each shift from the source anew.

    Args:
        model: what ``models.load`` gave.
        root: where the data set lies: a folder of images, by default.
        dataset: one of ``acclimate list datasets``.
        shifts: as ``--shift`` has them; none is the test shifts of a data set that has its own,
            else its images as they are.
        split: of the data set; None is its first.
        recipe: how to adapt; "none" scores it unadapted.
        options: changes to the recipe.
        clean: labelled source images; with a recipe, what is forgotten of them is measured too.
        batch_size: images at a time; None is the recipe's, or 128.
        weights: the file the model was filled with, for the record.
        out: a folder for the results; the same call resumes where it was stopped.
        device: where to run; CUDA when there is one.
        seed: of the adaptation.
        incomplete: warn of wrong counts instead of refusing them.
        progress: show bars on stderr.
    """
    given = dict(options or {})
    if recipe == UNADAPTED and (given or clean is not None):
        what = "options" if given else "clean images"
        raise AcclimateError(f"the recipe 'none' adapts nothing and takes no {what}")
    jobs = [
        Job(
            model=model.name,
            dataset=dataset,
            recipe=recipe,
            shift=shift,
            options=typed_options(get_recipe(recipe, given), given),
            seed=seed,
            weights=None if weights is None else Weights.of(weights),
            split=split_of(dataset, split),
            forgetting=clean is not None,
            batch_size=batch_size,
        )
        for shift in evaluated_shifts(dataset, shifts)
    ]
    if find_dataset(dataset).shifts:
        own = [Shift.parse(str(job.shift)) for job in jobs]
        check_shifts(dataset, root, own, split=split, incomplete=incomplete, progress=progress)
    roots = {dataset: root} if clean is None else {dataset: root, CLEAN: clean}
    worker = Worker(roots, device=device, incomplete=incomplete, progress=progress, rescore=True)
    worker.models.put(jobs[0], model)
    kept = TemporaryDirectory() if out is None else claimed(_folder(user_path(out)))
    with kept as folder:
        results = _run(jobs, Store(Path(folder) / RESULTS), model, worker)
        report = EvaluationReport(results, root=str(user_path(root).absolute()))
        if out is not None:
            write_files({Path(folder) / EVALUATION: json_writer(report.to_dict())})
    return report


def evaluated_shifts(dataset: str, words: Sequence[str]) -> list[str | None]:
    """As `job_shifts`, but of one preset: a mean over two would be of nothing.

    >>> evaluated_shifts("folder", ["cifar/fog:2", "imagenet/fog:2"])
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected shifts of one preset, got cifar and imagenet; \
evaluate them one after the other
    """
    shifts = job_shifts(dataset, words)
    presets = {Shift.parse(shift).preset for shift in shifts if shift is not None}
    if len(presets) > 1:
        raise AcclimateError(
            f"expected shifts of one preset, got {' and '.join(sorted(map(str, presets)))}; "
            "evaluate them one after the other"
        )
    return shifts


def _folder(folder: Path) -> Path:
    if (folder / EVALUATION).exists() and not (folder / RESULTS).exists():
        raise AcclimateError(
            f"expected {RESULTS} beside {EVALUATION} in {folder} to resume from, found none (an "
            "acclimate before 0.2 wrote none); choose another folder"
        )
    return folder


def _run(jobs: Sequence[Job], store: Store, model: LoadedModel, worker: Worker) -> list[Result]:
    """The results of all jobs: those in the store, if they fit, and the others run now."""
    found = {job.key: store.get(job.key) for job in jobs}
    results = {key: each for key, each in found.items() if each and each.status == "done"}
    _refuse_others([results[job.key] for job in jobs if job.key in results], store, model, worker)
    if len(results) < len(jobs):
        store.check_writable()
    for job in tqdm(jobs, unit="shift", disable=not worker.progress or len(jobs) == 1):
        if job.key not in results:
            result = worker.run(job)
            if result.status == "failed":
                where = f"{job.shift or CLEAN}: " if len(jobs) > 1 else ""
                raise AcclimateError(f"{where}{result.message}")
            store.add(result)
            results[job.key] = result
    return [results[job.key] for job in jobs]


def _refuse_others(
    results: Sequence[Result], store: Store, model: LoadedModel, worker: Worker
) -> None:
    """Refuse to show stored results of another model, of other images, or of other preprocessing.

    These are in no job's key, since a name or a folder stands for them. A shift of a data set that
    has its own takes as long to open as to evaluate: there the first one stands for all.
    """
    for number, result in enumerate(results):
        job, record = result.job, result.record
        own = find_dataset(job.dataset).shifts
        if number == 0 or not own:
            opened = worker.images.shifted(job, model, cache=0)  # corruptions are not made
        preprocessing = opened.images.preprocessing
        described = None if preprocessing is None else preprocessing.describe()
        compared = [
            ("weights", record.weights, worker.models.fingerprint),
            ("preprocessing", record.preprocessing, described),
        ]
        if number == 0 or not own:
            compared.append(("images or labels", record.data, opened.data))
            changed = _changed_recipe(result, model, len(opened.images))
            compared.append(("options of the recipe", *changed))
        if job.forgetting:
            clean = worker.images.clean(job, model)
            compared.append(("clean images", record.forgetting.data, clean.data))
        for what, then, now in compared:
            if then != now:
                raise AcclimateError(
                    f"the result for {job.shift or CLEAN} in {store.path} is of other {what}: "
                    f"expected {then}, got {now}; choose another --out (out=)"
                )


def _changed_recipe(result: Result, model: LoadedModel, images: int) -> tuple[str, str]:
    """An option of a ``py:`` recipe as it was recorded and as it is now; alike where none differs.

    What another recipe is, its name and options say.
    """
    job, then = result.job, result.record.recipe
    if then is None or not job.recipe.startswith("py:"):
        return "", ""
    recipe, _ = tuned_recipe(
        get_recipe(job.recipe),
        dict(job.options),
        model_name=model.name,
        images=images,
        model=model.model,
        classes=model.class_count,
    )
    now = plain(recipe.to_dict())
    if then == now:
        return "", ""
    option, there, here = first_difference({"recipe": then}, {"recipe": now})
    return f"{option} {there}", here


@dataclass(frozen=True)
class EvaluationReport:
    """The results of one model on each shift, and means over them.

    Means leave out clean images where there are shifted ones.
    """

    results: Sequence[Result]
    root: str = ""

    def averaged(self) -> Sequence[Result]:
        """The results that means are over."""
        return [each for each in self.results if each.job.shift is not None] or self.results

    def counts(self) -> list[ErrorCounts]:
        """Wrong predictions and images that means are over, top-1 and, if counted, top-5."""
        return [_counts(result) for result in self.averaged()]

    def table(self) -> ErrorTable | None:
        """Errors by corruption and severity; None where there are no severities."""
        return self._table(self.counts())

    def error(self, *, interval: float | None = None) -> Figure:
        """The mean over shifts of the mean over severities, in percent."""
        return self._mean(self.counts(), interval)

    def top5_error(self, *, interval: float | None = None) -> Figure | None:
        """As `error`, but of the five highest predictions; None where it was not counted."""
        if any(result.record.wrong_top5 is None for result in self.averaged()):
            return None
        counts = [replace(each, wrong_top1=each.wrong_top5) for each in self.counts()]
        return self._mean(counts, interval)

    def _table(self, counts: Sequence[ErrorCounts]) -> ErrorTable | None:
        cells: dict[tuple[str, int], ErrorCounts] = {}
        for result, count in zip(self.averaged(), counts, strict=True):
            if result.job.severity is None:
                return None
            cell = (shift_name(result), result.job.severity)
            cells[cell] = cells[cell] + count if cell in cells else count  # another draw
        return ErrorTable(cells)

    def _mean(self, counts: Sequence[ErrorCounts], interval: float | None) -> Figure:
        table = self._table(counts)
        if table is not None:
            return table.mean_error(interval=interval)
        names = map(shift_name, self.averaged())
        return mean_error(dict(zip(names, counts, strict=True)), interval=interval)

    def relative_error(self, *, interval: float | None = None) -> RelativeError | None:
        """mCE or mDE, where the shifts are all that these are the mean of; else None.

        They compare with AlexNet on ImageNet-C and ImageNet-D as released, and are meant for these
        alone.
        """
        averaged, table = self.averaged(), self.table()
        dataset = averaged[0].job.dataset
        made_by_imagenet = all(result.job.preset == "imagenet" for result in averaged)
        if table is not None and (dataset == "imagenet-c" or made_by_imagenet):
            complete = set(map(plain_shift, table.corruptions()))
            if complete == set(CORRUPTIONS) and len(table.cells) == 5 * len(CORRUPTIONS):
                by_shift: dict[str, list[ErrorCounts]] = {}
                for (name, _), count in sorted(table.cells.items()):
                    by_shift.setdefault(name, []).append(count)
                return mce(by_shift, interval=interval)
        errors = dict(zip(map(shift_name, averaged), self.counts(), strict=True))
        if dataset == "imagenet-d" and set(errors) == set(DOMAINS):
            return mde(errors, interval=interval)
        return None

    def mean_of(self, values: Sequence[float | None], *, unit: str = "%") -> Figure | None:
        """The mean over shifts of the mean over severities of a number for each of `results`.

        None where a result lacks it.
        """
        averaged = self.averaged()
        keys = {result.key for result in averaged}
        # Two draws of a shift at one severity are two results.
        rows = [
            (0, shift_name(result), index, value)
            for index, (result, value) in enumerate(zip(self.results, values, strict=True))
            if value is not None and result.key in keys
        ]
        if len(rows) < len(averaged):
            return None
        images = sum(result.record.labelled or 0 for result in averaged)
        return Figure(value=mean_over_seeds(by_seeds(rows)) or 0.0, images=images, unit=unit)

    def to_dict(self, *, interval: float | None = None) -> dict[str, Any]:
        """Plain values, as ``--json`` prints them: what was run, the means, a record per shift."""
        relative = self.relative_error(interval=interval)
        metric = {}
        if relative is not None:
            details = {"parts": dict(relative.parts), "notes": list(relative.notes)}
            metric = {relative.metric: {**vars(relative.figure), **details}}
        job = self.results[0].job
        run = {**job.to_dict(), "root": self.root, "seed": job.seed}
        run.pop("shift", None)
        return {
            "run": run,
            "error": vars(self.error(interval=interval)),
            **metric,
            "parts": [
                {
                    "shift": shift_name(result),
                    "severity": result.job.severity,
                    "preset": result.job.preset,
                    **result.record.to_dict(),
                }
                for result in self.results
            ],
        }


def shift_name(result: Result) -> str:
    """The corruption or domain that was found, or clean."""
    return result.corruption or CLEAN


def _counts(result: Result) -> ErrorCounts:
    record = result.record
    top5 = record.wrong_top5
    return ErrorCounts(
        images=record.images or 0,
        answers=1 if top5 is None else 5,
        labelled=torch.tensor(record.labelled or 0),
        wrong_top1=torch.tensor(record.wrong or 0),
        wrong_top5=torch.tensor(top5 or 0),
    )
