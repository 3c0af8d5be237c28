"""``acclimate results``."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from acclimate.cli.options import add_command, add_json, add_where
from acclimate.errors import AcclimateError
from acclimate.table import Table
from acclimate.text import counted, option_words, user_path

if TYPE_CHECKING:
    from acclimate.bench import Result, Store
    from acclimate.bench import Table as ResultTable
    from acclimate.bench.store import Added

__all__ = ["add_parser", "table_text"]

_DESCRIPTION = """\
Print a store of results as a table, or export it.

Means are over severities, then corruptions, then seeds, and over nothing else:
whatever else differs has a row of its own. A mean over fewer shifts than it
should have is marked: (12 of 15).

examples:
  acclimate results sweep.db --columns corruption --sort error
  acclimate results sweep.db --where recipe=ent,rpl --where severity=5 \\
      --rows recipe,options
  acclimate results sweep.db --value mce
  acclimate results sweep.db --export all.json
"""

_ROWS = "model,recipe"
_REASONS = 3
_NO_VALUE = {"setting": "stationary", "images": "all", "corruption": "clean"}


def add_parser(commands: Any) -> None:
    """``acclimate results`` and its options."""
    groups = add_command(
        commands,
        "results",
        run,
        summary="print tables of a store of results, or export them",
        description=_DESCRIPTION,
        usage="STORE [options]",
        data="results",
    )
    add = groups.data.add_argument
    add("store", metavar="STORE", help="the file that acclimate bench wrote")
    add_where(groups)
    added = "first add the results of another store, or of its .json; makes STORE where missing"
    add("--merge", metavar="FILE", help=added)
    add = groups.output.add_argument
    add("--rows", metavar="NAMES", help=f"default: {_ROWS}, without those that are columns")
    add("--columns", metavar="NAMES", default="", help="corruption, severity, ... (default: none)")
    values = "error, online, unadapted, mce, ece, seconds, memory, forgetting"
    add("--value", metavar="NAME", default="error", help=f"{values} (default: %(default)s)")
    by = "a row's or column's name, or the value: --sort error; --sort=-error: largest first"
    add("--sort", metavar="NAME", help=by)
    written = "write the results to a .csv, .json or .parquet file; repeatable"
    add("--export", metavar="FILE", action="append", default=[], help=written)
    add_json(groups)


def run(args: argparse.Namespace) -> int:
    """Print a table of a store's results, or export them."""
    from acclimate.bench import Condition, conditions, corruption_table, pivot
    from acclimate.bench.store import export_all
    from acclimate.bench.table import needed

    where = conditions(args.where)
    store, added = _opened(args)
    merged = {} if added is None else {"merged": asdict(added)}
    asked = f" with {' and '.join(args.where)}" if args.where else ""
    nothing = AcclimateError(f"{args.store} has no results{asked}")
    if args.export:
        results = store.results(where)
        if not results:
            raise nothing
        export_all(results, args.export)
        record = {"exported": len(results), "files": args.export, **merged}
        text = f"{counted(len(results), 'result')} written to {' and '.join(args.export)}"
        print(json.dumps(record) if args.json else text)
        return 0
    columns, rows = _names(args.columns), _names(args.rows or _ROWS)
    if args.rows is None:
        rows = [name for name in rows if name not in columns] or rows
    frame = store.select(needed(args.value, [*rows, *columns]), where)
    if not frame:
        raise nothing
    if columns == ["corruption"]:
        shown = corruption_table(frame, rows=rows, value=args.value)
    else:
        shown = pivot(frame, rows=rows, columns=columns, value=args.value)
    if args.sort is not None:
        shown = shown.sorted_by(args.sort)
    if args.json:
        print(json.dumps({**shown.to_dict(), **merged}))
        return 0
    if added is not None:
        counts = f"{added.new:,} new, {added.replaced:,} replace failed ones"
        print(f"merged {args.merge}: {counts}, {added.kept:,} already there\n")
    print(table_text(shown))
    if shown.failed:
        failed = store.results([*where, Condition("status", ("failed",))])
        print("\n".join(_reasons(failed)))
    return 0


def _opened(args: argparse.Namespace) -> tuple[Store, Added | None]:
    """The store, and what ``--merge`` added to it; a missing one is made of what is merged."""
    from acclimate.bench import Store
    from acclimate.bench.store import is_made, results_in

    if args.merge is None:
        return Store(args.store, create=False), None
    if is_made(user_path(args.store)):
        store = Store(args.store, create=False)
        return store, store.merge(args.merge)
    found = results_in(args.merge)
    store = Store(args.store)
    try:
        return store, store.add_all(found)
    except AcclimateError:  # a mistake leaves no store behind
        store.path.unlink()
        raise


def _reasons(failed: Sequence[Result]) -> list[str]:
    """Why jobs failed: the reasons that most have."""
    counts = Counter(result.reason for result in failed)
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    lines = [f"  {count:,}: {reason}" for reason, count in most[:_REASONS]]
    more = len(most) - _REASONS
    if more > 0:
        lines.append(f"  and {counted(more, 'more reason')}; all: --export FILE.json")
    return lines


def _names(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


def table_text(shown: ResultTable) -> str:
    """A table of results for people, with what all of them share above and notes below."""
    columns = shown.column_keys
    titles = [" ".join(map(_head, shown.columns, key)) for key in columns]
    if not shown.columns:
        titles = [f"{shown.value} {shown.unit}".rstrip()]
    rows = []
    for row in shown.row_keys:
        cells = [shown.cell(row, column) for column in columns]
        counts = [cell.images for cell in cells if cell.images is not None]
        images = f"{max(counts):,}" if counts else "-"
        words = map(_word, shown.rows, row)
        rows.append([*words, *(cell.text(shown.digits) for cell in cells), images])
    same = ", ".join(f"{name} {_word(name, value)}" for name, value in shown.constant.items())
    header = [*shown.rows, *titles, "labelled" if "images" in shown.rows else "images"]
    title = f"{shown.title}\n{same}" if same else shown.title
    return Table(rows, header=header, title=title, notes=_notes(shown)).text()


def _notes(shown: ResultTable) -> list[str]:
    notes = []
    averaged = "severity" not in (*shown.rows, *shown.columns)
    if averaged and shown.severities and shown.severities != (1, 2, 3, 4, 5):
        severities = "severity" if len(shown.severities) == 1 else "severities"
        notes.append(f"{severities} {', '.join(map(str, shown.severities))} only")
    if any(cell.std is not None for cell in shown.cells.values()):
        notes.append("± is the standard deviation over seeds")
    begun = [cell for cell in shown.cells.values() if cell.parts]
    if any(cell.parts < cell.expected_parts for cell in begun):
        notes.append("(12 of 15): a mean over only so many of its shifts")
    if any(cell.seeds < cell.all_seeds for cell in begun):
        notes.append("(2 of 3 seeds): a mean over the seeds that ran on the most shifts")
    if shown.value == "mce" and any(cell.value is None and cell.complete for cell in begun):
        notes.append("the mCE is relative to AlexNet on ImageNet-C; other data have none")
    if shown.value == "forgetting" and all(c.value is None for c in shown.cells.values()):
        notes.append("not measured in these runs; measure it with acclimate bench --forgetting")
    if shown.failed:
        notes.append(f"failed jobs: {shown.failed:,}; the same command runs them again")
    return notes


def _head(name: str, value: Any) -> str:
    word = _word(name, value)
    # A number alone, or a dash, needs its name.
    bare = isinstance(value, int | float) or word == "-"
    return f"{name.removeprefix('options.')} {word}" if bare else word


def _word(name: str, value: Any) -> str:
    """A value of a dimension.

    >>> _word("setting", None), _word("options", '{"optimizer.lr": 0.001}')
    ('stationary', 'optimizer.lr=0.001')
    """
    if name == "options":
        return option_words(json.loads(value).items(), between=" ", none="-")
    return _NO_VALUE.get(name, "-") if value is None else str(value)
