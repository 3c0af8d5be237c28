"""How it was run: settings, data, recipes in full, and what failed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

from acclimate.bench.record import Result
from acclimate.report.settings import Found
from acclimate.table import Entry, Table, number_entry
from acclimate.text import counted, option_words

__all__ = ["data_table", "failures_table", "notes_table", "recipes_in_full", "runs_table"]

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
    return Table(
        name="runs",
        title="What was run, and what it took",
        header=["model", "dataset", "corruptions", "recipe", "options", "results", "seeds",
                "shifts", "labelled images", "batch", "device", "seconds each",
                "minutes in all", "peak MB"],
        rows=rows,
        notes=[*named, *others, *([_PEAK] if any(row[10] == "cpu" for row in rows) else [])],
    ).first(_RUNS, rest=_ELSEWHERE)  # fmt: skip


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
