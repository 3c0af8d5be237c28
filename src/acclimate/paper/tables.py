"""The published tables and figures as data, read from JSON, and how they are found by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from acclimate.errors import AcclimateError, unknown_name
from acclimate.metrics.published import (
    ALEXNET_CORRUPTIONS,
    ALEXNET_DOMAINS,
    published_corruptions,
    published_domains,
)

__all__ = [
    "GROUPS", "NO_RUN", "OWN", "Cell", "Table", "find_table", "find_tables", "only_cells",
    "own_tables", "printed", "tables", "with_models",
]  # fmt: skip


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
        chosen_on: on what the best was chosen.
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
        group: the file it is stored in.
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


GROUPS = ("main", "ablations", "epochs", "corruptions", "imagenet_d", "domains", "figures")
"""The files, in the order in which tables are listed."""

OWN = "readme"
"""The file of our own tables, those of README: no table of the paper."""

NO_RUN = {"parameters", "adapted parameters", "classes", "optimizer.lr", "batch_size", "epochs"}
"""Metrics that are counted, or known to the library; nothing is run for them."""

Entry: TypeAlias = Mapping[str, Any]

_OF_TABLE = ("label", "kind", "title", "metric", "unlabelled", "transposed", "printed_as", "note")
_NOT_OF_CELL = {*_OF_TABLE, "aliases", "settings", "columns", "rows"} - {"metric"}
_NOT_INHERITED = {"values", "reuse", "row_wins"}
_REORDERED = "The paper has the numbers of this row under the wrong heads."


@cache
def tables() -> tuple[Table, ...]:
    """All tables and figures, in the order in which they are listed.

    >>> len(tables())
    50
    """
    return tuple(table for group in GROUPS for table in _read(group))


@cache
def own_tables() -> tuple[Table, ...]:
    """The tables that README opens with, beside what the paper prints of the same.

    They are found by their names alone (``find_tables``), and count nowhere as the paper's.

    >>> [table.label for table in own_tables()]
    ['readme:imagenet-c', 'readme:cifar10-c', 'readme:cifar10-c-5']
    """
    return tuple(
        replace(table, cells=tuple(map(_beside_print, table.cells))) for table in _read(OWN)
    )


def printed(
    *,
    model: str | None,
    recipe: str | None,
    dataset: str | None,
    metric: str,
    shift: str | None = "test",
    severity: int | None = None,
) -> float | None:
    """What the paper prints for a model, a recipe and shifts, as it ran them itself.

    None where it does not, and where an architecture stands for several models, which a name does
    not tell apart.

    >>> printed(model="paper:resnet50", recipe="rpl", dataset="imagenet-c", metric="mCE")
    50.5
    """
    wanted = (model, recipe, dataset, metric, shift, severity)
    found = {
        cell.published
        for table in tables()
        for cell in table.to_run
        if cell.published is not None
        and not (cell.options or cell.epochs or cell.source)
        and (cell.model, cell.recipe, cell.dataset, cell.metric, cell.shift, cell.severity)
        == wanted
    }
    return found.pop() if len(found) == 1 else None


def _beside_print(cell: Cell) -> Cell:
    """One of our own cells with what the paper prints of the same."""
    theirs = printed(
        model=cell.model,
        recipe=cell.recipe,
        dataset=cell.dataset,
        metric=cell.metric,
        shift=cell.shift,
        severity=cell.severity,
    )
    return replace(cell, published=theirs)


def _read(group: str) -> Iterator[Table]:
    text = (files("acclimate.paper") / f"{group}.json").read_text(encoding="utf-8")
    content = json.loads(text)
    return (_table(entry, group, content.get("define", {})) for entry in content["tables"])


def find_tables(name: str) -> list[Table]:
    """Those that a label, with or without its prefix, an alias or a wildcard pattern names.

    ``readme`` names those of README.

    >>> [table.label for table in find_tables("table-2")]
    ['tbl:table-2']
    >>> [table.label for table in find_tables("fig:2p*")]
    ['fig:2p-momentum', 'fig:2p-standard', 'fig:2p-weight']
    """
    own = [table for table in own_tables() if name in (table.label, OWN)]
    if own:
        return own
    named = [(table, (table.label, *table.aliases)) for table in tables()]
    found = [table for table, own in named if name in own]
    found = found or [
        table
        for table, own in named
        if any(fnmatchcase(form, name) for each in own for form in (each, _bare(each)))
    ]
    if not found:
        known = [table.label for table in tables()]
        # A typo in a name without prefix is nearer to the labels without theirs.
        raise unknown_name(
            "table of the paper", name, known if ":" in name else [*map(_bare, known)]
        )
    return found


def _bare(label: str) -> str:
    return label.rpartition(":")[2]


def find_table(label: str) -> Table:
    """The first table that a name stands for.

    >>> cell = find_table("tbl:table-1").cells[2]
    >>> cell.row, cell.column, cell.published, cell.metric, cell.model, cell.recipe
    ('ResNet50 vanilla', 'RPL', 50.5, 'mCE', 'paper:resnet50', 'rpl')
    """
    return find_tables(label)[0]


def only_cells(
    tables: Sequence[Table], *, rows: Sequence[str] = (), columns: Sequence[str] = ()
) -> list[Table]:
    """Tables with only the cells whose row and column match one of the patterns; none means all.

    >>> [cell.column for cell in only_cells(find_tables("groupnorm"), rows=["*GN"])[0].cells]
    ['parameters', 'w/o adapt', 'RPL', 'ENT']
    """
    found = list(tables)
    for what, patterns in {"row": rows, "column": columns}.items():
        if not patterns:
            continue
        known = dict.fromkeys(getattr(cell, what) for table in tables for cell in table.cells)
        fit = {name for name in known if any(fnmatchcase(name, each) for each in patterns)}
        if not fit:
            raise AcclimateError(
                f"no {what} is called {' or '.join(patterns)}; there are: {'; '.join(known)}"
            )
        kept = (tuple(c for c in table.cells if getattr(c, what) in fit) for table in found)
        found = [replace(t, cells=cells) for t, cells in zip(found, kept, strict=True) if cells]
    if (rows or columns) and not found:
        raise AcclimateError("no cell has such a row and such a column")
    return found


def with_models(tables: Sequence[Table], others: Mapping[str, str]) -> list[Table]:
    """Tables whose runs are of other models than the paper's, which a note says.

    What is counted from the paper's model stays.

    >>> (table,) = with_models(find_tables("tbl:table-8"), {"paper:resnet50": "timm:resnet50.a1"})
    >>> table.cells[0].model, table.cells[0].note
    ('timm:resnet50.a1', 'timm:resnet50.a1 in place of paper:resnet50')
    """
    known = {cell.model for table in tables for cell in table.to_run}
    for name in others:
        if name not in known:
            models = ", ".join(sorted(filter(None, known)))
            raise AcclimateError(
                f"--model {name}=...: none of the cells that are asked for is of {name}; models: "
                f"{models or 'none'}"
            )

    def replaced(cell: Cell) -> Cell:
        other = others.get(cell.model or "")
        if other is None or cell.published_only or cell.metric in NO_RUN:
            return cell
        notes = filter(None, [f"{other} in place of {cell.model}", cell.note])
        return replace(cell, model=other, weights=None, note="; ".join(notes))

    return [replace(table, cells=tuple(map(replaced, table.cells))) for table in tables]


def _table(entry: Entry, group: str, define: Entry) -> Table:
    columns: list[Entry] = []
    for column in entry.get("columns", ()):
        columns += define[column] if isinstance(column, str) else [column]
    shared = {key: value for key, value in entry.items() if key not in _NOT_OF_CELL}
    shared["table"] = entry["label"]
    return Table(
        **{key: entry[key] for key in _OF_TABLE if key in entry},
        group=group,
        aliases=tuple(entry.get("aliases", ())),
        settings=MappingProxyType(entry.get("settings", {})),
        cells=tuple(cell for row in entry.get("rows", ()) for cell in _cells(shared, row, columns)),
    )


def _cells(shared: Entry, row: Entry, columns: Sequence[Entry]) -> Iterator[Cell]:
    values = _values(shared, row, columns)
    for column, value in zip(columns, values or [None] * len(columns), strict=True):
        if value is None and values is not None:
            continue  # an empty place, or what cannot be run
        own = value if isinstance(value, dict) else {"published": value}
        yield _cell(shared, row, column, {"diverged": True} if value == "diverged" else own)


def _values(shared: Entry, row: Entry, columns: Sequence[Entry]) -> list[Any] | None:
    """What is printed in a row; None in a figure. Some is stored by ``acclimate.metrics``."""
    reuse = row.get("reuse")
    if reuse is None:
        return row.get("values")
    if reuse == "alexnet":
        return [{**ALEXNET_CORRUPTIONS, **ALEXNET_DOMAINS}[row["shift"]]]
    model, recipe, *note = reuse
    (found,) = (
        each
        for each in (*published_corruptions(), *published_domains())
        if (each.label, each.model, each.recipe) == (shared["table"], model, recipe)
        and each.note == "".join(note)
    )
    errors: list[Any] = [
        found.errors[column["shift"]] for column in columns if column.get("shift") in found.errors
    ]
    if found.reordered:
        errors = [{"published": error, "erratum": _REORDERED} for error in errors]
    return [*errors, found.printed, *row.get("values", ())]


def _cell(shared: Entry, row: Entry, column: Entry, own: Entry) -> Cell:
    row_wins = row.get("row_wins")
    layers = [shared, column, row, own] if row_wins else [shared, row, column, own]
    merged: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for layer in layers:
        merged |= {key: value for key, value in layer.items() if key not in _NOT_INHERITED}
        # Options add up. None, or those of a row that wins over its column, start anew.
        if "options" in layer:
            anew = layer["options"] is None or (row_wins and layer is row)
            options = {**({} if anew else options), **(layer["options"] or {})}
    search = {key: tuple(tried) for key, tried in merged.pop("search", {}).items()}
    merged |= {"options": MappingProxyType(options), "search": MappingProxyType(search)}
    return Cell(**merged)
