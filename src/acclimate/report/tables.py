"""The tables of a report: before and after, by corruption, and how it was run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeAlias

from acclimate.bench import Cell, Condition, Store, corruption_table, pivot
from acclimate.bench import Table as ResultTable
from acclimate.bench.job import UNADAPTED
from acclimate.bench.record import Result
from acclimate.bench.store import COLUMNS, Frame, row_of
from acclimate.bench.table import needed
from acclimate.report.settings import Found, Shown
from acclimate.table import Entry, Table, number_entry
from acclimate.text import counted, option_words

__all__ = [
    "data_table",
    "failures_table",
    "notes_table",
    "recipes_in_full",
    "runs_table",
    "settings_tables",
    "shift_tables",
    "shown_once",
]  # fmt: skip

GROUPS = {"test": "test", "none": "clean or other", "dev": "hold-out"}
"""The groups of corruptions as conditions have them, and in words; means never mix them."""

_ROWS = ("model", "recipe")
_SAME = ("model", "seeds", "labelled images", "corruptions")
"""Columns that become a note where all rows have the same."""
_UNSAID = {"coverage": "all", "mCE %": "–"}
"""Columns that are left out where every row has just this."""
_ABOUT = (
    "Top-1 error in percent, averaged over severities, then corruptions, then seeds; ± is the "
    "standard deviation over seeds. “After” is of the model returned, “online” of the "
    "predictions made before each update of the first epoch, “unadapted” of the source model on "
    "the same images, “BN” of the recipe bn.",
    "Relative reduction: by how much of the unadapted error the error fell; below zero it rose.",
)
COVERAGE = (
    "Coverage: 12 of 15 is a mean over that many of the shifts it is meant to be over; parts are "
    "shifts at a severity, from a seed. 2 of 3 seeds: a mean over those that ran on the most, and "
    "on the same. A number that covers another share than its row says so."
)
"""What the words beside a mean tell that is not over everything."""

_Key: TypeAlias = tuple[Any, ...]
_Columns: TypeAlias = Mapping[str, Any]


def _done_in(group: str, where: Sequence[Condition]) -> list[Condition]:
    """Conditions for the done results of a group of corruptions."""
    return [*where, Condition("status", ("done",)), Condition("group", (group,))]


def settings_tables(
    store: Store, where: Sequence[Condition], chosen: Sequence[Shown]
) -> tuple[Table, Table]:
    """A row for each recipe at the setting that stands for it, and a row for each setting.

    What else tells results apart and must not be averaged over has a column of its own.
    """
    mixed = [_columns(result) for each in chosen if each.mixed for result in each.results]
    done = store.select(needed("error"), [*where, Condition("status", ("done",))])
    whole = pivot(_with(done, mixed))
    names = [name for name in whole.rows if name != "group"]
    lines = {
        (group, *key): entries
        for group in GROUPS
        for key, entries in _lines(store, where, group, names, mixed)
    }
    every = next(iter(lines.values()))
    header = [name for name in every
              if any(line[name] != _UNSAID.get(name) for line in lines.values())]  # fmt: skip
    same = _constant(whole)
    if len(lines) > 1:
        alike = [name for name in _SAME if len({line[name] for line in lines.values()}) == 1]
        header = [name for name in header if name not in alike]
        words = [f"{name} {_text(every[name])}" for name in alike]
        same += [f"All rows: {', '.join(words)}."] if words else []
    rows = {key: [line[name] for name in header] for key, line in lines.items()}
    first = (_columns(each.results[0]) for each in chosen)
    picked = dict.fromkeys((_group(row), *(row[name] for name in names)) for row in first)
    why = sorted({each.why for each in chosen if each.why != "the only setting"})
    how = [f"Of several settings of a recipe: {'; or '.join(why)}."] if why else []
    missing = [COVERAGE] if "coverage" in header else []
    return (
        Table(
            name="headline",
            title="Mean error by model and recipe, before and after",
            header=header,
            rows=[rows[key] for key in picked if key in rows],
            notes=(*same, *how, *_ABOUT, *missing),
        ),
        Table(
            name="settings",
            title="Every setting",
            header=header,
            rows=list(rows.values()),
            notes=(*same, *missing),
        ),
    )


def _text(entry: Entry) -> str:
    return entry if isinstance(entry, str) else entry.text


def _columns(result: Result) -> _Columns:
    """A result's values as a store has them."""
    return dict(zip((name.strip('"') for name in COLUMNS), row_of(result), strict=True))


def _group(row: _Columns) -> str:
    return str(row["group"] or "none")


def _with(frame: Frame, more: Sequence[_Columns]) -> Frame:
    rows = [tuple(row[name] for name in frame.columns) for row in more]
    return replace(frame, rows=[*frame.rows, *rows])


def _lines(
    store: Store,
    where: Sequence[Condition],
    group: str,
    names: Sequence[str],
    mixed: Sequence[_Columns],
) -> Iterator[tuple[_Key, dict[str, Entry]]]:
    """The rows of a group of corruptions: what they are of, and their entries by column."""
    own = [row for row in mixed if _group(row) == group]

    def frame(value: str) -> Frame:
        return _with(store.select(needed(value), _done_in(group, where)), own)

    errors = frame("error")
    if not len(errors):
        return
    after = pivot(errors, rows=names)
    online, before, mce = (
        pivot(frame(value), rows=names, value=value) for value in ("online", "unadapted", "mce")
    )
    baselines = _Baselines(errors, after)
    for key in after.row_keys:
        about = dict(zip(after.rows, key, strict=True))
        cell = after.cell(key)
        # Of the recipe none, so that all rows have one number: passes of others may be in bfloat16.
        source, own_source = baselines.beside(key, UNADAPTED), before.cell(key)
        if own_source.value is not None and not _covers_as(source, cell):
            source = own_source
        entries = {
            **{name: _dimension(name, about[name]) for name in _ROWS},
            # Nothing is drawn where nothing is adapted.
            "unadapted %": _covered(replace(source, std=None), cell),
            "BN %": _covered(baselines.beside(key, "bn"), cell),
            "online %": _covered(online.cell(key), cell),
            "after %": _covered(cell, cell),
            "relative reduction %": _reduction(source, cell, about["recipe"]),
            "coverage": cell.missing or "all",
            "seeds": number_entry(cell.seeds or None, digits=0),
            "labelled images": number_entry(cell.images, digits=0),
            "corruptions": _images(group, baselines.places[key]),
            **{name: _dimension(name, about[name]) for name in names if name not in _ROWS},
            "mCE %": _covered(mce.cell(key), cell),
        }
        yield tuple(about[name] for name in names), entries


_Place: TypeAlias = tuple[str | None, int | None]
"""A corruption and a severity."""


class _Baselines:
    """What a recipe is compared with: the cells of another, on the places the recipe ran on."""

    def __init__(self, frame: Frame, table: ResultTable) -> None:
        self._frame, self._table = frame, table
        self._rows: dict[_Key, list[tuple[_Place, _Key]]] = {}
        keys = zip(*map(frame.column, table.rows), strict=True)
        places = zip(frame.column("corruption"), frame.column("severity"), strict=True)
        for key, place, row in zip(keys, places, frame.rows, strict=True):
            self._rows.setdefault(key, []).append((place, row))
        self.places = {key: {place for place, _ in rows} for key, rows in self._rows.items()}
        self._found: dict[_Key, _Key] = {}
        for key in table.row_keys:  # without options, where a recipe has both
            self._found.setdefault(self._compared(key), key)

    def beside(self, key: _Key, recipe: str) -> Cell:
        """The cell of a recipe for the row of ``key``."""
        other = self._found.get((recipe, *self._compared(key)[1:]))
        if other is None:
            return Cell(value=None)
        cell, places = self._table.cell(other), self.places[key]
        if self.places[other] <= places:
            return cell  # if of fewer, its coverage stands beside it
        # A mean over all severities says nothing beside one over the highest.
        same = [row for place, row in self._rows[other] if place in places]
        if not same:
            return Cell(value=None)
        few = pivot(replace(self._frame, rows=same), rows=self._table.rows).cell(other)
        return replace(cell, value=few.value, std=few.std, shifts=few.shifts, parts=few.parts,
                       images=few.images)  # fmt: skip

    def _compared(self, key: _Key) -> _Key:
        """A row's recipe, and what it shares with those it is compared with: all but options."""
        about = dict(zip(self._table.rows, key, strict=True))
        about.pop("options", None)
        return (about.pop("recipe"), *about.values())


def _images(group: str, places: Collection[_Place]) -> str:
    severities = sorted({severity for _, severity in places if severity is not None})
    words = f", severity {', '.join(map(str, severities))}" if severities else ""
    return GROUPS[group] + words


def _reduction(source: Cell, cell: Cell, recipe: str) -> Entry:
    if recipe == UNADAPTED or not source.value or cell.value is None:
        return "–"
    return number_entry(100 * (source.value - cell.value) / source.value)


def _covered(cell: Cell, row: Cell) -> Entry:
    """A number; what it covers stands beside it only where that is not what its row covers."""
    if cell.value is None:
        return "–"
    if _covers_as(cell, row):
        return number_entry(cell.value, text=replace(cell, expected_parts=0, all_seeds=0).text())
    more = " (all)" if row.missing and not cell.missing else ""
    return number_entry(cell.value, text=cell.text() + more)


def _covers_as(one: Cell, other: Cell) -> bool:
    """Whether two cells are over the same share; one may be of more seeds, if all of them."""
    return (
        (one.shifts, one.expected_shifts) == (other.shifts, other.expected_shifts)
        and one.parts * other.expected_parts == other.parts * one.expected_parts
        and one.seeds * other.all_seeds == other.seeds * one.all_seeds
    )


def _dimension(name: str, value: Any) -> Entry:
    """What tells a row apart, in words.

    >>> _dimension("options", '{"epochs":5}'), _dimension("images", None)
    ('epochs=5', 'all')
    """
    if name == "options":
        return option_words(json.loads(value).items(), none="–")
    if value is None:
        return {"images": "all", "weights": "its own", "corruption": "clean"}.get(name, "–")
    return number_entry(value, digits=0) if isinstance(value, int) else str(value)


def _constant(table: ResultTable) -> list[str]:
    """What is the same in all of a table."""
    words = []
    for name, value in table.constant.items():
        if name in (*table.rows, "severity", "group"):
            continue
        told = option_words(json.loads(value).items()) if name == "options" else value
        words.append(f"{value:,} images of each shift" if name == "images" else f"{name} {told}")
    return [f"Throughout: {', '.join(words)}."] if words else []


def shift_tables(store: Store, where: Sequence[Condition] = ()) -> list[Table]:
    """A column for each corruption, a row for each setting; a table for each group of them."""
    tables = (_shift_table(store, where, group) for group in GROUPS)
    return [table for table in tables if table is not None]


def _shift_table(store: Store, where: Sequence[Condition], group: str) -> Table | None:
    frame = store.select(needed("error", ["corruption"]), _done_in(group, where))
    if not len(frame):
        return None
    shown = corruption_table(frame)
    rows: list[list[Entry]] = []
    coverage: list[str] = []
    partial = False
    for key in shown.row_keys:
        cells = [shown.cell(key, column) for column in shown.column_keys]
        there = [cell for cell in cells if cell.value is not None]
        first = (there or cells)[0]
        entries = [_dimension(*pair) for pair in zip(shown.rows, key, strict=True)]
        rows.append([*entries, *(_covered(cell, first) for cell in cells)])
        coverage.append(first.missing or "all")
        partial = partial or any(cell.missing for cell in there)
    header = [*shown.rows, *(column[0] or "clean" for column in shown.column_keys)]
    if set(coverage) != {"all"}:
        rows = [[*row, words] for row, words in zip(rows, coverage, strict=True)]
        header.append("coverage")
    severities = ", ".join(map(str, shown.severities))
    return Table(
        name="by-corruption" if group == "test" else f"by-corruption-{GROUPS[group].split()[0]}",
        title=f"Top-1 error % of the model returned, {GROUPS[group]} images"
        + (f", severity {severities}" if severities else ""),
        header=header,
        rows=rows,
        notes=[*_constant(shown), *([COVERAGE] if partial else [])],
    )


_RUNS, _DATA, _FAILURES, _RECIPES, _NOTES = 250, 150, 100, 40, 50
_PEAK = "On the CPU the peak is of the process since it began, not of the job alone."
_ELSEWHERE = "acclimate results STORE --export all.csv has them all"


def runs_table(found: Found) -> Table:
    """A row for each setting on each panel."""
    rows: list[list[Entry]] = []
    versions: Counter[str] = Counter()
    for panel, settings in found.items():
        for setting, results in settings.items():
            records = [result.record for result in results]
            seconds = [r.seconds for r in records if r.seconds is not None]
            memory = [r.memory for r in records if r.memory is not None]
            versions.update(
                ", ".join(f"{name} {version}" for name, version in sorted(own.items()))
                for own in (r.versions for r in records)
                if own
            )
            rows.append([
                panel.model, panel.dataset,
                ", ".join(filter(None, (panel.group, panel.order))) or "–",
                setting.recipe, option_words(setting.options, none="–"),
                _count(len(results)), _range([result.job.seed for result in results]),
                _count(len({result.job.shift for result in results})),
                _count(sum(r.labelled or 0 for r in records)),
                _few(r.batch_size for r in records), _few(r.device for r in records),
                number_entry(fmean(seconds) if seconds else None, digits=2),
                number_entry(sum(seconds) / 60 if seconds else None),
                number_entry(max(memory) / 1e6 if memory else None, digits=0),
            ])  # fmt: skip
    named = [f"Versions of {counted(n, 'result')}: {v}." for v, n in versions.most_common(3)]
    more = len(versions) - len(named)
    others = [f"Results of {more} more sets of versions."] if more else []
    table = Table(
        name="runs",
        title="What was run, and what it took",
        header=["model", "dataset", "corruptions", "recipe", "options", "results", "seeds",
                "shifts", "labelled images", "batch", "device", "seconds each",
                "minutes in all", "peak MB"],
        rows=rows,
        notes=[*named, *others, *([_PEAK] if any(row[10] == "cpu" for row in rows) else [])],
    )  # fmt: skip
    columns = ("model", "dataset", "corruptions", "options", "batch", "device")
    return shown_once(table, columns).first(_RUNS, rest=_ELSEWHERE)


def shown_once(table: Table, columns: Sequence[str]) -> Table:
    """A table without those of some columns that are the same in all rows: a note has them.

    >>> shown_once(Table(name="t", title="t", header=["model", "error"],
    ...                 rows=[["wrn", "1"], ["wrn", "2"]]), ["model"]).notes
    ['All rows: model wrn.']
    """
    if len(table.rows) < 2:
        return table
    same = [
        place
        for place, name in enumerate(table.header)
        if name in columns and len({str(row[place]) for row in table.rows}) == 1
    ]
    words = [
        f"{table.header[place]} {table.rows[0][place]}"
        for place in same
        if str(table.rows[0][place]) != "–"
    ]
    return replace(
        table,
        header=[name for place, name in enumerate(table.header) if place not in same],
        rows=[[e for place, e in enumerate(row) if place not in same] for row in table.rows],
        notes=[*table.notes, *([f"All rows: {', '.join(words)}."] if words else [])],
    )


def data_table(results: Sequence[Result]) -> Table:
    """The images: a fingerprint over images and labels for each shift."""
    seen = Counter(
        (r.job.dataset, r.job.shift or "clean", r.job.split or "the first",
         r.record.images or 0, (r.record.data or "not recorded")[:16],
         r.record.preprocessing or "–")
        for r in results
    )  # fmt: skip
    rows = [
        [*where, number_entry(images or None, digits=0), data, words, _count(count)]
        for (*where, images, data, words), count in sorted(seen.items())
    ]
    header = ["dataset", "shift", "split", "images", "fingerprint", "preprocessing", "results"]
    title = "The images, by a fingerprint over images and labels"
    table = Table(name="data", title=title, header=header, rows=rows)
    return table.first(_DATA, rest=_ELSEWHERE)


def recipes_in_full(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The recipes that were run as JSON, each once, with a title; the most frequent first."""
    recipes = (result.record.recipe for result in results)
    seen = Counter(json.dumps(recipe, sort_keys=True) for recipe in recipes if recipe)
    found = []
    for text, count in seen.most_common(_RECIPES):
        recipe = json.loads(text)
        parts = (f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in recipe.items())
        title = f"{recipe.get('name', 'recipe')}: {counted(count, 'result')}"
        found.append((title, "{\n" + ",\n".join(parts) + "\n}"))  # a part to a line
    left = len(seen) - len(found)
    return [*found, (f"{left:,} more recipes are left out here", _ELSEWHERE)] if left else found


def notes_table(results: Sequence[Result]) -> Table:
    """The notes of the runs, and the guard's verdicts."""
    seen: Counter[str] = Counter()
    for result in results:
        seen.update(result.record.notes)
        if result.record.verdict:
            seen[f"the guard's verdict: {result.record.verdict}"] += 1
    rows = [[note, _count(count)] for note, count in seen.most_common()]
    table = Table(name="notes", title="Notes of the runs", header=["note", "results"], rows=rows)
    return table.first(_NOTES, rest=_ELSEWHERE)


def failures_table(failed: Sequence[Result]) -> Table:
    """Jobs without a result, by reason."""
    by_reason: dict[str, list[Result]] = {}
    for result in failed:
        by_reason.setdefault(result.reason, []).append(result)
    rows = [
        [_count(len(results)), reason, _few(r.job.model for r in results),
         _few(r.job.recipe for r in results), _few(r.job.shift or "clean" for r in results),
         _few(option_words(r.job.options, none="–") for r in results),
         _range([r.job.seed for r in results])]
        for reason, results in sorted(by_reason.items(), key=lambda item: -len(item[1]))
    ]  # fmt: skip
    return Table(
        name="failed",
        title=f"{len(failed):,} failed jobs, by reason",
        header=["jobs", "reason", "models", "recipes", "shifts", "options", "seeds"],
        rows=rows,
        notes=["The same sweep runs them again."],
    ).first(_FAILURES, rest=_ELSEWHERE)


def _count(number: int) -> Entry:
    return number_entry(number, digits=0)


def _few(values: Iterable[object]) -> str:
    """Three of the different values, and how many more there are."""
    ordered = sorted({str(value) for value in values if value is not None})
    more = f", and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + more or "–"


def _range(numbers: Sequence[int]) -> str:
    each = sorted(set(numbers))
    return ", ".join(map(str, each)) if len(each) < 6 else f"{each[0]}–{each[-1]} ({len(each)})"
