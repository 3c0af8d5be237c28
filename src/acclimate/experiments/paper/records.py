"""A table of the paper, and a number in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Cell", "Table"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number the paper prints (or, in a figure, draws), and what is run to measure it again.

    Attributes:
        table: the label of its table.
        row: in which row it belongs.
        column: in which column it belongs. Where the paper has it elsewhere, ``erratum`` says so.
        metric: error, accuracy, mCE, mDE, ECE; filtered error, unmappable share; parameters,
            adapted parameters, classes; an option's name for a chosen hyper-parameter; in figures
            also online error, most predicted classes.
        unit: "%" or nothing.
        published: the number as printed; None in figures, and for what diverged.
        std: the deviation, where one is printed.
        diverged: whether the paper prints that the run diverged.
        model: as in ``models.load``; None where none is run.
        weights: what has to be given with the model: whose file, or the command that makes it.
        dataset: a name of ``list_datasets``: adapted to, and scored on.
        split: of the data set; None is its first.
        shift: test, dev, or a single corruption or domain; None where the data set has none.
        severity: 1 to 5; None is the mean of all five, where there are severities.
        scored_on: another data set than the one adapted to.
        recipe: as in ``list_recipes``; of another's method, its name. None where nothing runs.
        options: of the recipe. What they do not name is what the paper chose for the model.
        epochs: None is what the paper chose for the model.
        seeds: over how many the number is a mean.
        search: the options that were tried, where the number is of the best of them.
        chosen_on: by what the best was told.
        published_only: not for us to run: another's number, or a method there is no recipe for.
        source: whose number it is, where it is not the paper's own.
        erratum: what is wrong with the print.
        note: what else one should know.
    """

    table: str
    row: str
    column: str
    metric: str
    unit: str = "%"
    published: float | None = None
    std: float | None = None
    diverged: bool = False
    model: str | None = None
    weights: str | None = None
    dataset: str | None = None
    split: str | None = None
    shift: str | None = None
    severity: int | None = None
    scored_on: str | None = None
    recipe: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    seeds: int = 1
    search: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    chosen_on: str | None = None
    published_only: bool = False
    source: str | None = None
    erratum: str | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table or figure of the paper.

    Attributes:
        label: in the .tex file.
        kind: table or figure.
        title: what it shows.
        metric: of most of its cells.
        cells: row by row.
        group: the file it is kept in.
        aliases: other labels it goes by.
        unlabelled: whether the paper gives it no label, and the label is ours.
        transposed: whether the paper has rows for our columns.
        printed_as: "share" where the paper prints shares and the cells are percent.
        settings: what is run that is no cell: ``theory`` names a simulation of
            ``acclimate.theory.settings``, ``rank_correlations`` the table they are taken from.
        note: what one should know of the whole table.
    """

    label: str
    kind: Literal["table", "figure"]
    title: str
    metric: str
    cells: tuple[Cell, ...]
    group: str
    aliases: tuple[str, ...] = ()
    unlabelled: bool = False
    transposed: bool = False
    printed_as: Literal["number", "share"] = "number"
    settings: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None

    @property
    def to_run(self) -> tuple[Cell, ...]:
        """The cells that can be measured."""
        return tuple(cell for cell in self.cells if not cell.published_only)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets needed to measure it."""
        names = {name for cell in self.to_run for name in (cell.dataset, cell.scored_on) if name}
        return tuple(sorted(names))

    @property
    def models(self) -> tuple[str, ...]:
        """The models needed to measure it."""
        return tuple(sorted({cell.model for cell in self.to_run if cell.model}))

    @property
    def weights(self) -> tuple[str, ...]:
        """What has to be downloaded or trained besides: see ``Cell.weights``."""
        return tuple(sorted({cell.weights for cell in self.to_run if cell.weights}))
