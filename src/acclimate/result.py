"""What an adaptation returns, and how it is stored."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.checkpoint import read_tensors, tensors_writer
from acclimate.data.base import Skipped
from acclimate.errors import AcclimateError
from acclimate.files import Writer, csv_writer, file_sha256, json_writer, write_files
from acclimate.guard.estimate import ErrorEstimate
from acclimate.guard.guard import Guard
from acclimate.guard.history import History
from acclimate.guard.verdict import Verdict
from acclimate.methods import Recipe
from acclimate.models.record import Metadata, model_metadata, read_metadata
from acclimate.parts.adapters import NAME
from acclimate.reading import read_csv, read_object
from acclimate.text import Keep, Score, Speed, titled_rows

__all__ = [
    "HISTORY",
    "MODEL",
    "PREDICTIONS",
    "RECORD",
    "SUMMARY",
    "AdaptationResult",
    "RunRecord",
    "stored_run",
]

RECORD = "run.json"
MODEL, SUMMARY, HISTORY, PREDICTIONS = (
    "model.safetensors",
    "summary.json",
    "history.json",
    "predictions.csv",
)


BEFORE = "_before"
"""How the columns of the unadapted model's predictions end."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """All that a run depends on: the same record, the same result.

    Attributes:
        model: its name.
        weights: a checksum of the source model.
        recipe: with all options, as it ran.
        images: a digest of the images.
        count: how many there are.
        shift: the corruption they were seen through.
        preprocessing: how they were fitted to the model, in words.
        device: "cpu" or "cuda".
        versions: of this package, torch and Python.
        options: as asked for, where the recipe was planned; ``plan`` says why it is this one.
        acceleration: how the model ran, in words; None before it ran.
    """

    model: str
    weights: str
    recipe: Recipe
    images: str
    count: int
    shift: str | None
    preprocessing: str | None
    batch_size: int
    seed: int
    guard: Guard
    keep: Keep
    score: Score
    device: str
    speed: Speed
    versions: Mapping[str, str]
    estimate: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    plan: Sequence[str] = ()
    acceleration: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values |= {"recipe": self.recipe.to_dict(), "guard": asdict(self.guard)}
        if self.acceleration is None:
            del values["acceleration"]
        try:
            plain: dict[str, Any] = json.loads(json.dumps(values))
        except TypeError as error:
            raise AcclimateError(
                f"the options of recipe {self.recipe.name!r} cannot be stored: {error}; expected "
                "words, numbers and lists"
            ) from error
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> RunRecord:
        """Read :meth:`to_dict`'s values back."""
        recipe, guard = Recipe.from_dict(plain["recipe"]), Guard(**plain["guard"])
        plan = tuple(plain.get("plan", ()))
        return cls(**{**plain, "recipe": recipe, "guard": guard, "plan": plan})


def stored_run(folder: Path) -> dict[str, Any] | None:
    """The record, in plain values, of the run whose finished result a folder holds, if any."""
    if not (folder / SUMMARY).exists():
        return None
    record: dict[str, Any] = read_object(folder / SUMMARY, "run")["run"]
    return record


@dataclass(repr=False)
class AdaptationResult:
    """The adapted model and everything there is to know about how it was made.

    ``model`` is the plain model, in ``eval()``; ``predictions`` are the classes it predicts, one
    per image, ``probabilities`` their calibrated probabilities, ``confidence`` the raw ones,
    ``names`` the images; ``left_out`` names those that were skipped, and why. ``record`` says what
    the run depended on: versions, seed, checksums of weights and images. ``metadata`` are the
    model's name, classes and preprocessing, which are written beside its weights.

    The three with ``_before`` are the unadapted model's, calibrated by its own estimated error;
    None where it was not asked (guard off, no labels).

    ``cost`` is how many forward passes it took for each image, estimates included, a backward pass
    counted as two; None where the result was read, or the work shared out.
    """

    model: nn.Module
    history: History
    verdict: Verdict
    predictions: Tensor
    confidence: Tensor
    probabilities: Tensor
    names: Sequence[str]
    record: RunRecord
    class_names: Sequence[str] | None = None
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    left_out: Sequence[Skipped] = ()
    predictions_before: Tensor | None = None
    confidence_before: Tensor | None = None
    probabilities_before: Tensor | None = None
    cost: float | None = None
    metadata: Metadata | None = None

    def __repr__(self) -> str:
        """A few lines: the model's weights and the predictions would fill the screen."""
        return titled_rows(f"{type(self).__name__}: {self.verdict}", self._overview())

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        rows = {"verdict": str(self.verdict), **self._overview()}
        cells = (
            f"<tr><th style='text-align: left'>{name}</th>"
            f"<td style='text-align: left'>{html.escape(value)}</td></tr>"
            for name, value in rows.items()
        )
        return f"<table>{''.join(cells)}</table>"

    def _overview(self) -> dict[str, str]:
        skipped = f" ({self.skipped:,} skipped)" if self.skipped else ""
        rows = {
            "model": self.record.model,
            "recipe": self.recipe.name,
            "images": f"{len(self.predictions):,}{skipped}",
        }
        if self.estimated_error is not None:
            rows["estimated error"] = str(self.estimated_error).removeprefix("estimated error ")
        if self.error_after is not None:
            before = "" if self.error_before is None else f"{self.error_before:.1f} % -> "
            rows["error"] = f"{before}{self.error_after:.1f} %"
        return {**rows, "history": self.history.describe()}

    @property
    def recipe(self) -> Recipe:
        """The recipe as it ran, with all options."""
        return self.record.recipe

    @property
    def changed(self) -> Tensor | None:
        """Whether the prediction of each image is another than before; None where not known."""
        before = self.predictions_before
        return None if before is None else self.predictions != before

    @property
    def error_before(self) -> float | None:
        """Percent of wrong predictions of the source model, where labels are known."""
        return self.history.source.error if self.history.source else None

    @property
    def error_after(self) -> float | None:
        """Percent of wrong predictions of the model returned, where labels are known."""
        return self.history.final.error if self.history.final else None

    @property
    def estimated_error(self) -> ErrorEstimate | None:
        """The error without labels, of the unadapted and of the adapted model, and the change.

        None where it cannot be estimated. Where the verdict is that the source model is returned,
        ``after`` and ``change`` are of the adapted model that is not.
        """
        return self.history.estimate

    @property
    def temperature(self) -> float | None:
        """What the model's logits are divided by for calibrated probabilities, where estimated."""
        return self.history.temperature

    def summary(self) -> dict[str, Any]:
        """The result in plain values, as ``--json`` prints it."""
        error = {"before": self.error_before, "after": self.error_after}
        estimate = self.estimated_error
        return {
            "recipe": self.recipe.name,
            "images": len(self.predictions),
            "skipped": self.skipped,
            "guard": {
                "verdict": self.verdict.word,
                "reason": self.verdict.reason,
                "returns_adapted": self.verdict.returns_adapted,
                "events": [vars(event) for event in self.history.events],
            },
            **({"error": error} if self.error_after is not None else {}),
            "estimated_error": estimate.to_dict() if estimate else None,
            "temperature": self.temperature,
            "kept_epoch": self.history.kept_epoch,
            "statistics_gap": self.history.statistics_gap,
            "notes": self.notes,
        }

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write model, predictions, history and summary, all or none of them.

        A folder that holds the result of another run is refused unless ``overwrite`` is set.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AcclimateError(f"could not make the folder {folder}: {error.strerror}") from error
        run, there = self.record.to_dict(), stored_run(folder)
        if there not in (None, run) and not overwrite:
            raise AcclimateError(
                f"{folder} holds the result of another run; choose another, or overwrite=True"
            )
        summary = {**self.summary(), "recipe": self.recipe.to_dict(), "run": run}
        if self.left_out:
            summary["left_out"] = [asdict(skipped) for skipped in self.left_out]
        files = {
            MODEL: tensors_writer(tensors_of(self.model), self._model_record()),
            PREDICTIONS: csv_writer(self._predictions()),
            HISTORY: json_writer(self.history.to_dict()),
            RECORD: json_writer(run),
        }
        sha256: dict[str, str] = {}
        hashed = {folder / name: _hashed(name, write, sha256) for name, write in files.items()}

        def write_summary(path: Path) -> None:
            json_writer({**summary, "sha256": {**sha256, SUMMARY: _digest(summary)}})(path)

        # Last: it marks the result as whole.
        write_files({**hashed, folder / SUMMARY: write_summary})
        return folder

    def _model_record(self) -> dict[str, Any] | None:
        """What a user of the weights alone should know; ``models.load`` reads most of it."""
        known = self.metadata
        record = {} if known is None else model_metadata(known.of(self.model))
        if self.temperature is not None:
            record["temperature"] = self.temperature
        return record or None

    def _predictions(self) -> Iterator[list[Any]]:
        columns: dict[str, Sequence[Any]] = {
            "image": self.names,
            **self._columns(self.predictions, self.confidence, self.probabilities),
        }
        before = (self.predictions_before, self.confidence_before, self.probabilities_before)
        if self.changed is not None:
            known = [each for each in before if each is not None]
            columns |= {f"{key}{BEFORE}": each for key, each in self._columns(*known).items()}
            columns["changed"] = ["true" if each else "false" for each in self.changed.tolist()]
        yield list(columns)
        yield from map(list, zip(*columns.values(), strict=True))

    def _columns(
        self, classes: Tensor, confidence: Tensor, probability: Tensor
    ) -> dict[str, Sequence[Any]]:
        """What one model predicts, by column."""
        names, chosen = self.class_names, classes.tolist()
        return {
            "class": chosen,
            **({} if names is None else {"name": [names[each] for each in chosen]}),
            "confidence": [f"{each:.6f}" for each in confidence.tolist()],
            "probability": [f"{each:.6f}" for each in probability.tolist()],
        }

    @classmethod
    def load(cls, folder: str | Path, model: nn.Module) -> AdaptationResult:
        """Read a saved result into ``model``, the source model or one of the same architecture.

        Files that are not those the run wrote are refused; results of 0.1 carry no hashes to tell.
        """
        folder = Path(folder)
        try:
            summary = read_object(folder / SUMMARY)
            _check_files(folder, summary)
            history = History.from_dict(read_object(folder / HISTORY))
            rows = read_csv(folder / PREDICTIONS, "image", "class", "confidence")
            earlier = {} if not rows or f"class{BEFORE}" not in rows[0] else _read(rows, BEFORE)
            record = RunRecord.from_dict(summary["run"])
            read = cls(
                model=model,
                history=history,
                verdict=Verdict(
                    summary["guard"]["verdict"],
                    summary["guard"]["reason"],
                    returns_adapted=summary["guard"].get("returns_adapted", True),
                ),
                **_read(rows),
                **{f"{name}{BEFORE}": each for name, each in earlier.items()},
                names=[row["image"] for row in rows],
                skipped=summary["skipped"],
                notes=summary["notes"],
                left_out=[Skipped(**skipped) for skipped in summary.get("left_out", [])],
                record=record,
                metadata=read_metadata(folder / MODEL),
            )
        except (OSError, AcclimateError) as error:
            raise AcclimateError(f"{folder} does not hold a finished result: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AcclimateError(
                f"{folder} does not hold a finished result: it is damaged ({error!r})"
            ) from error
        tensors, _ = read_tensors(folder / MODEL)
        if any(NAME in key.split(".") for key in tensors):
            record.recipe.selector.extend(model, torch.Generator())
        _fill(model, tensors, folder)
        model.eval()
        return read


def _read(rows: Sequence[Mapping[str, str]], ending: str = "") -> dict[str, Any]:
    """One model's columns of the table of predictions; 0.1 wrote no calibrated probabilities."""
    raw, calibrated = f"confidence{ending}", f"probability{ending}"
    return {
        "predictions": torch.tensor([int(row[f"class{ending}"]) for row in rows]),
        "confidence": torch.tensor([float(row[raw]) for row in rows]),
        "probabilities": torch.tensor([float(row.get(calibrated, row[raw])) for row in rows]),
    }


def _hashed(name: str, write: Writer, into: dict[str, str]) -> Writer:
    """A writer that also notes the sha256 of what it wrote."""

    def hashed(path: Path) -> None:
        write(path)
        into[name] = file_sha256(path)

    return hashed


def _digest(summary: Mapping[str, Any]) -> str:
    """The sha256 of a summary's values, hashes aside: it cannot hold that of its own file."""
    plain = json.loads(json.dumps({k: v for k, v in summary.items() if k != "sha256"}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _check_files(folder: Path, summary: Mapping[str, Any]) -> None:
    """Refuse a file that is not the one the run wrote."""
    for name, expected in summary.get("sha256", {}).items():
        if name not in (MODEL, PREDICTIONS, HISTORY, RECORD, SUMMARY):
            raise AcclimateError(f"expected hashes of its own files, got {name!r}")
        found = _digest(summary) if name == SUMMARY else file_sha256(folder / name)
        if found != expected:
            raise AcclimateError(
                f"expected the sha256 {expected:.12}… of {name}, got {found:.12}…: it is damaged "
                "or was changed since; put back the one that was written, or remove the folder and "
                "run again"
            )


def _fill(model: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    try:
        unwrapped(model).load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise AcclimateError(
            f"the result in {folder} belongs to another architecture than "
            f"{type(model).__name__}: {first}"
        ) from error


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """A model's state without what is no tensor (a module's own extra state)."""
    return {k: v for k, v in unwrapped(model).state_dict().items() if isinstance(v, Tensor)}


def unwrapped(model: nn.Module) -> nn.Module:
    """The plain model inside those that torch.compile and DataParallel make of it.

    >>> unwrapped(nn.DataParallel(nn.Linear(2, 2)))
    Linear(in_features=2, out_features=2, bias=True)
    """
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    inner = getattr(model, "_orig_mod", None)  # torch.compile's; its class has no public name
    return unwrapped(inner) if isinstance(inner, nn.Module) else model
