"""How it was run: settings, data, recipes in full, and what failed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

from acclimate.bench.record import Result
from acclimate.report.settings import Found, Panel
from acclimate.table import Entry, Table, number_entry
from acclimate.text import counted, option_words

__all__ = ["data_table", "failures_table", "notes_table", "recipes_in_full", "runs_table"]

_RUNS, _DATA, _FAILURES, _RECIPES, _NOTES = 250, 150, 100, 40, 50
_PEAK = "On the CPU the peak is of the process since it began, not of the job alone."
_ELSEWHERE = "acclimate results STORE --export all.csv has them all"


def runs_table(found: Found) -> Table:
    """A row for each setting on each panel."""
    rows: list[list[Entry]] = []
    for panel, settings in found.items():
        for setting, results in settings.items():
            records = [result.record for result in results]
            seconds = [r.seconds for r in records if r.seconds is not None]
            memory = [r.memory for r in records if r.memory is not None]
            rows.append(
                [
                    panel.model, panel.dataset, _images(panel), setting.recipe,
                    option_words(setting.options, none="–"),
                    number_entry(len(results), digits=0),
                    _range([result.job.seed for result in results]),
                    number_entry(len({result.job.shift for result in results}), digits=0),
                    number_entry(sum(r.labelled or 0 for r in records), digits=0),
                    _common(r.batch_size for r in records), _common(r.device for r in records),
                    number_entry(fmean(seconds) if seconds else None, digits=2),
                    number_entry(sum(seconds) / 60 if seconds else None, digits=1),
                    number_entry(max(memory) / 1e6 if memory else None, digits=0),
                ]
            )  # fmt: skip
    return Table(
        name="runs",
        title="What was run, and what it took",
        header=["model", "dataset", "corruptions", "recipe", "options", "results", "seeds",
                "shifts", "labelled images", "batch", "device", "seconds each",
                "minutes in all", "peak MB"],
        rows=rows,
        notes=[*_versions(found), *([_PEAK] if any(row[10] == "cpu" for row in rows) else [])],
    ).first(_RUNS, rest=_ELSEWHERE)  # fmt: skip


def _images(panel: Panel) -> str:
    return ", ".join(word for word in (panel.group, panel.order) if word) or "–"


def data_table(results: Sequence[Result]) -> Table:
    """The images: a fingerprint over images and labels for each shift."""
    counted = Counter(
        (r.job.dataset, r.job.shift or "clean", r.job.split or "the first",
         r.record.images or 0, (r.record.data or "not recorded")[:16],
         r.record.preprocessing or "–")
        for r in results
    )  # fmt: skip
    rows = [
        [dataset, shift, split, number_entry(images or None, digits=0), data, words,
         number_entry(count, digits=0)]
        for (dataset, shift, split, images, data, words), count in sorted(counted.items())
    ]  # fmt: skip
    header = ["dataset", "shift", "split", "images", "fingerprint", "preprocessing", "results"]
    title = "The images, by a fingerprint over images and labels"
    table = Table(name="data", title=title, header=header, rows=rows)
    return table.first(_DATA, rest=_ELSEWHERE)


def recipes_in_full(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The recipes that were run as JSON, each once, with a title; the most frequent first."""
    seen: Counter[str] = Counter()
    for result in results:
        if result.record.recipe:
            seen[json.dumps(result.record.recipe, sort_keys=True)] += 1
    found = [
        (f"{json.loads(text).get('name', 'recipe')}: {counted(count, 'result')}", _indented(text))
        for text, count in seen.most_common(_RECIPES)
    ]
    left = len(seen) - len(found)
    return [*found, (f"{left:,} more recipes are left out here", _ELSEWHERE)] if left > 0 else found


def _indented(text: str) -> str:
    """A part of a recipe to a line."""
    lines = (f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in json.loads(text).items())
    return "{\n" + ",\n".join(lines) + "\n}"


def notes_table(results: Sequence[Result]) -> Table:
    """The notes of the runs, and the guard's verdicts."""
    counted: Counter[str] = Counter()
    for result in results:
        counted.update(result.record.notes)
        if result.record.verdict:
            counted[f"the guard's verdict: {result.record.verdict}"] += 1
    rows = [[note, number_entry(count, digits=0)] for note, count in counted.most_common()]
    table = Table(name="notes", title="Notes of the runs", header=["note", "results"], rows=rows)
    return table.first(_NOTES, rest=_ELSEWHERE)


def failures_table(failed: Sequence[Result]) -> Table:
    """Jobs without a result, by reason."""
    by_reason: dict[str, list[Result]] = {}
    for result in failed:
        by_reason.setdefault(result.reason, []).append(result)
    rows = [
        [
            number_entry(len(results), digits=0),
            reason,
            _few({result.job.model for result in results}),
            _few({result.job.recipe for result in results}),
            _few({result.job.shift or "clean" for result in results}),
            _few({option_words(result.job.options, none="–") for result in results}),
            _range([result.job.seed for result in results]),
        ]
        for reason, results in sorted(by_reason.items(), key=lambda item: -len(item[1]))
    ]
    header = ["jobs", "reason", "models", "recipes", "shifts", "options", "seeds"]
    title = f"{len(failed):,} failed jobs, by reason"
    table = Table(
        name="failed",
        title=title,
        header=header,
        rows=rows,
        notes=["The same sweep runs them again."] if failed else [],
    )
    return table.first(_FAILURES, rest=_ELSEWHERE)


def _few(words: set[str]) -> str:
    ordered = sorted(words)
    return ", ".join(ordered[:3]) + (f", and {len(ordered) - 3} more" if len(ordered) > 3 else "")


def _range(numbers: Sequence[int]) -> str:
    each = sorted(set(numbers))
    return ", ".join(map(str, each)) if len(each) < 6 else f"{each[0]}–{each[-1]} ({len(each)})"


def _common(values: Iterable[object]) -> str:
    return _few({str(value) for value in values if value is not None}) or "–"


def _versions(found: Found) -> list[str]:
    found_in = Counter(
        ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        for settings in found.values()
        for results in settings.values()
        for result in results
        if (versions := result.record.versions)
    )
    named = [f"Versions of {counted(n, 'result')}: {v}." for v, n in found_in.most_common(3)]
    more = len(found_in) - len(named)
    return [*named, f"Results of {more} more sets of versions."] if more > 0 else named
