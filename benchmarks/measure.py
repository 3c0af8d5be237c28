"""The measured tables of this project: plans that are run, stored and exported.

    python benchmarks/measure.py run cifar10c --root DATA --store cifar10c.db [--workers 6]
    python benchmarks/measure.py cost imagenet_c --images 5000       # what it will take
    python benchmarks/measure.py export cifar10c --store cifar10c.db
    python benchmarks/measure.py restore cifar10c --store kept.db    # acclimate report kept.db
    python benchmarks/measure.py restore --store kept.db             # the results of all plans
    python benchmarks/measure.py status --write                      # docs/published.md
    python benchmarks/measure.py ship --write                        # the choices of the package

A plan (plans/NAME.yaml) is a list of stages. Each lets ``acclimate tune`` choose options on
hold-out shifts, and measures the choice with ``acclimate bench``: the words in it are those of the
command line, and ``bench`` takes over models and data sets. What is in the store already is not run
again: stop and resume at any time. ``export`` writes every measurement to results/NAME.json, beside
those of other stores, and the choices to results/choices; page_tables.py makes tables of them.
``run --missing`` resumes in a new store where the exported results and choices end; ``restore``
makes a store of the exported results alone, for ``acclimate results``, ``acclimate report`` and
``acclimate reproduce --status``, whose table ``status`` puts into docs/published.md. ``ship`` puts
the choices that README and docs are measured with into the package.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from acclimate.bench import Job, Record, Result, Store
from acclimate.cli import main as acclimate
from acclimate.cli import sweep
from acclimate.cli import tune as tuning
from acclimate.cli.parser import build_parser
from acclimate.paper import chosen
from acclimate.paper.estimate import images_of, work_of
from acclimate.paper.tables import find_table
from acclimate.table import Number, Table
from page_tables import in_page, read_rows

HERE = Path(__file__).parent
RESULTS = HERE / "results"
CHOICES = RESULTS / "choices"
SHARED = ("models", "datasets", "weights")
LARGE = {"imagenet_c", "imagenet_dev", "cifar_grid", "cifar_settling"}
IN_PLACE = ("paper:resnet50=py:photo_models:resnet50",)
"""Networks with weights from Python packages, where the paper's own are not to be had here."""
TEN_CLASSES = {"few_classes", "photos"}
"""Plans on photos of ten of ImageNet's classes, which measure no number of the paper."""
INTERRUPTED = sweep.INTERRUPTED
Row = dict[str, Any]
ERRORS = {
    "unadapted": "unadapted", "error": "final", "after_epoch": "after_epoch", "online": "online",
}  # fmt: skip
FIGURES = (
    "ece", "forgetting", "by_shift", "forwards", "backwards", "seconds", "speed", "device",
    "verdict",
)  # fmt: skip
RESTORED = "restored"
"""Marks a result that was made of an exported row."""
NOT_KEPT = "not kept"
"""In place of the checksum of weights of which none was stored: no file has it."""
NAMES = sorted(path.stem for path in (HERE / "plans").glob("*.yaml"))


def words(stage: Mapping[str, Any]) -> list[str]:
    """A part of a stage as the command line has it.

    >>> words({"models": ["a", "b"], "set": ["x=1", "y=2"], "epochs": 3, "forgetting": True})
    ['--models', 'a', 'b', '--set', 'x=1', '--set', 'y=2', '--epochs', '3', '--forgetting']
    """
    found: list[str] = []
    for name, value in stage.items():
        if name in ("set", "weights"):  # given once for each
            found += [word for each in value for word in (f"--{name}", str(each))]
        elif value is True:
            found.append(f"--{name}")
        else:
            values = value if isinstance(value, list) else [value]
            found += [f"--{name}", *map(str, values)]
    return found


def choice_file(name: str, folder: Path, tune: Mapping[str, Any]) -> Path:
    """Where the choice of a plan's stage is written: the same search, the same file."""
    model = str(tune["models"][0]).partition(":")[2] or "model"
    digest = hashlib.blake2b(json.dumps(tune, sort_keys=True).encode(), digest_size=4).hexdigest()
    return folder / f"{name}.{model}.{digest}.json"


def run(args: argparse.Namespace) -> int:
    """Choose and measure, stage by stage; the worst exit status, `INTERRUPTED` where time is up."""
    common = ["--root", str(args.root), "--store", str(args.store), "--quiet"]
    if args.workers:
        common += ["--engine", "processes", "--workers", str(args.workers)]
    if args.device:
        common += ["--device", args.device]
    if args.missing:
        restore(args)
    status = 0
    try:
        with stopping_after(args.seconds):
            for stages in shared(chosen_stages(args)):
                status = max(status, run_stages(args, stages, common))
                if status == INTERRUPTED:
                    break
    except KeyboardInterrupt:  # between two sweeps, which end by themselves
        status = INTERRUPTED
    if args.export is not None and args.store.exists():
        export(args, to=args.export)
    return status


def run_stages(
    args: argparse.Namespace, stages: Sequence[dict[str, Any]], common: Sequence[str]
) -> int:
    """Stages that choose nothing at once, or one that may."""
    if len(stages) > 1:
        return together([words(each["bench"]) for each in stages], common)
    (stage,) = stages
    tune, bench, status = stage.get("tune"), stage["bench"], 0
    choice: list[str] = []
    if tune:
        file = choice_file(args.name, args.store.parent, tune)
        choice = ["--choice", str(file)]
        if args.missing and (CHOICES / file.name).exists():
            if not file.exists():
                file.write_bytes((CHOICES / file.name).read_bytes())
        else:
            status = acclimate(["tune", *words(tune), *common, "--out", str(file)])
    if status == INTERRUPTED:
        return status
    return max(status, acclimate(["bench", *words(bench), *common, *choice]))


def chosen_stages(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The stages of a plan that are asked for, with as few images as asked for."""
    for number, stage in enumerate(plan(args.name), start=1):
        if args.stages and number not in args.stages:
            continue
        tune, bench = dict(stage.get("tune", {})), dict(stage["bench"])
        bench = {name: tune[name] for name in SHARED if name in tune} | bench
        for part in filter(None, (tune, bench)):  # a stage may choose nothing
            if args.images:
                part["images"] = min(args.images, part.get("images", args.images))
            if args.shifts:
                part["shifts"] = args.shifts
        yield {"tune": tune, "bench": bench} if tune else {"bench": bench}


def shared(stages: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Stages that can run at once, so that jobs on the same images find them decoded and corrupted.

    Those are neighbours that choose nothing and differ in no more than models, shifts and options.
    """

    def alike(stage: dict[str, Any]) -> object:
        bench = stage["bench"]
        return None if "tune" in stage else (bench["datasets"], bench.get("score"))

    for key, found in groupby(stages, key=alike):
        group = list(found)
        yield from [[each] for each in group] if key is None else [group]


def together(stages: Sequence[Sequence[str]], common: Sequence[str]) -> int:
    """Several calls of ``acclimate bench`` as one, sorted by model and shift."""
    calls = [build_parser().parse_args(["bench", *each, *common]) for each in stages]
    plans = [sweep.plan_of(call) for call in calls]
    jobs = {job.key: job for plan in plans for job in plan.jobs()}
    places = dict.fromkeys((job.model, job.shift) for job in jobs.values())
    order = {place: number for number, place in enumerate(places)}
    by_shift = sorted(jobs.values(), key=lambda job: order[job.model, job.shift])
    _, outcome = sweep.sweep_plan(plans[0], by_shift, calls[0])
    if outcome is None:
        return INTERRUPTED
    print("\n".join(sweep.failures(outcome, calls[0])))
    return sweep.SOME_FAILED if outcome.failed else sweep.OK


@contextmanager
def stopping_after(seconds: float | None) -> Iterator[None]:
    """Stop what runs in the block as Ctrl-C does: the same command resumes."""
    if seconds is None:
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def cost(args: argparse.Namespace) -> int:
    """Jobs and forward passes of each stage, and of all, a backward pass being two of them."""
    rows: list[list[str | Number]] = []
    total = Counter[str]()
    for number, stage in enumerate(plan(args.name), start=1):
        jobs = jobs_of(stage)
        once = stage["bench"].get("score") == "end"
        passes = sum(passes_of(job, args.images, once=once) for job in jobs)
        found = {"jobs": len(jobs), "passes": passes}
        total.update(found)
        rows.append([str(number), _first(stage), *_numbers(found, args.rate)])
    rows.append(["all", "", *_numbers(total, args.rate)])
    heads = ["stage", "what", "jobs", "passes, million", f"minutes at {args.rate:,} a second"]
    print(Table(rows, heads).text())
    return 0


def passes_of(job: Job, images: int | None, *, once: bool) -> int:
    """Forward passes of a job; ``once``: scored at its end rather than after each epoch."""
    epochs = dict(job.options).get("epochs")
    spared = epochs - 1 if once and job.group != "dev" and isinstance(epochs, int) else 0
    return work_of(job, images) - spared * images_of(job, images)


def jobs_of(stage: Mapping[str, Any]) -> list[Job]:
    """The jobs of a stage, its search first; what is chosen there is taken to be its longest."""
    tune, bench = dict(stage.get("tune", {})), dict(stage["bench"])
    bench = {name: tune[name] for name in SHARED if name in tune} | bench
    for part in (tune, bench):
        if "weights" in part:
            part["weights"] = [__file__]  # theirs need not be here: nothing is run
    calls = [("tune", tune)] if tune else []
    if tune:
        longest = [f"{name}:epochs={tune['epochs']}" for name in tune["recipes"]]
        own = [each for each in longest if each.partition(":")[0] in bench["recipes"]]
        bench["set"] = [*bench.get("set", []), *own]
    found = []
    for command, part in (*calls, ("bench", bench)):
        call = build_parser().parse_args([command, *words(part), "--store", "none.db"])
        found += (tuning.plan_of if command == "tune" else sweep.plan_of)(call).jobs()
    return found


def _first(stage: Mapping[str, Any]) -> str:
    bench = {**stage.get("tune", {}), **stage["bench"]}
    models = ", ".join(each.rpartition(":")[2] for each in bench["models"])
    return f"{models}: {', '.join(bench['recipes'])}"


def _numbers(counts: Mapping[str, int], rate: int) -> list[Number]:
    passes, minutes = counts["passes"] / 1e6, counts["passes"] / rate / 60
    return [
        Number(f"{counts['jobs']:,}", counts["jobs"]),
        Number(f"{passes:,.1f}", passes),
        Number(f"{minutes:,.0f}", minutes),
    ]


def plan(name: str) -> list[dict[str, Any]]:
    """The stages of a plan."""
    stages: list[dict[str, Any]] = yaml.safe_load(
        (HERE / "plans" / f"{name}.yaml").read_text(encoding="utf-8")
    )
    return stages


def target_of(name: str, folder: Path | None = None) -> Path:
    """Where the results of a plan are exported to; large ones are compressed."""
    return (folder or RESULTS) / f"{name}.json{'.gz' if name in LARGE else ''}"


def exported(name: str) -> list[dict[str, Any]]:
    """The results of a plan that are exported already."""
    target = target_of(name)
    return read_rows(target) if target.exists() else []


def export(args: argparse.Namespace, *, to: Path | None = None) -> int:
    """Write a row for every measurement; what only served to choose is left out.

    Args:
        args: the plan's name, and the store.
        to: another folder than that of the results, which are added to all the same.
    """
    chooses = any("tune" in stage for stage in plan(args.name))
    rows = {identity(each): each for each in exported(args.name)}
    for result in Store(args.store, create=False).results():
        measured = result.status == "done" and RESTORED not in result.record.more
        if measured and not (chooses and result.job.group == "dev"):
            found = row(result)
            rows[identity(found)] = found
    target = target_of(args.name, to)
    lines = ",\n".join(sorted(json.dumps(each) for each in rows.values()))
    text = f"[\n{lines}\n]\n".encode()
    target.write_bytes(gzip.compress(text, mtime=0) if target.suffix == ".gz" else text)
    print(f"{len(rows)} results in {target}")
    choices = (to or RESULTS) / CHOICES.name
    choices.mkdir(exist_ok=True)
    for file in args.store.parent.glob(f"{args.name}.*.json"):
        (choices / file.name).write_bytes(file.read_bytes())
    return 0


def restore(args: argparse.Namespace) -> int:
    """The exported rows as results of a store; those of all plans where none is named."""
    known = list(map(restored, exported(args.name))) if args.name else everything()
    Store(args.store).add_all(known)
    print(f"{len(known)} results in {args.store}")
    return 0


def status(args: argparse.Namespace) -> int:
    """Whether the page has the state of every published cell; with --write it gets it."""
    page = args.page.read_text(encoding="utf-8")
    wanted = in_page(page, states(), name="status")
    if args.write:
        args.page.write_text(wanted, encoding="utf-8")
    elif wanted != page:
        print(f"{args.page} has other states; python benchmarks/measure.py status --write")
        return 1
    return 0


def states() -> str:
    """``acclimate reproduce --status`` of all exported results."""
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()) as out:
        store = Path(folder) / "kept.db"
        Store(store).add_all(everything(leave_out=TEN_CLASSES))
        others = [word for pair in IN_PLACE for word in ("--model", pair)]
        call = ["reproduce", "--status", "--format", "markdown", "--store", str(store)]
        acclimate([*call, *others])
    return out.getvalue().strip()


SHIPPED = HERE.parent / "src" / "acclimate" / "paper" / chosen.FILE
_SHIPPED_FIELDS = ("options", "selection", "chosen_on", "searched")
_TUNED = {"optimizer.lr", "epochs"}
SEARCHES = ("cifar_grid", "cifar10c")
"""The plans whose choices ship."""


def ship(args: argparse.Namespace) -> int:
    """Whether the package has the choices of the plans; with --write it gets them."""
    wanted = shipped()
    if args.write:
        SHIPPED.write_text(wanted, encoding="utf-8")
    elif not SHIPPED.exists() or SHIPPED.read_text(encoding="utf-8") != wanted:
        print(f"{SHIPPED} has other choices; python benchmarks/measure.py ship --write")
        return 1
    return 0


def shipped() -> str:
    """Of each model and recipe of the headline the first choice of learning rate and epochs alone.

    The paper's protocol comes first. What a later stage chose among other options (all weights) is
    another method.
    """
    found: dict[str, dict[str, Any]] = {}
    searches = [
        (name, stage["tune"]) for name in SEARCHES for stage in plan(name) if "tune" in stage
    ]
    for name, search in searches:
        file = choice_file(name, CHOICES, search)
        if not file.exists():
            continue
        for model, recipes in json.loads(file.read_text(encoding="utf-8")).items():
            for recipe, entry in recipes.items():
                if set(entry["options"]) <= _TUNED:
                    few = {name: entry[name] for name in _SHIPPED_FIELDS}
                    found.setdefault(model, {}).setdefault(recipe, few)
    models = (
        f"{json.dumps(model)}: {{\n" + ",\n".join(_in_a_line(recipes)) + "\n}"
        for model, recipes in found.items()
    )
    return "{\n" + ",\n".join(models) + "\n}\n"


def _in_a_line(recipes: Mapping[str, Any]) -> Iterator[str]:
    return (f"  {json.dumps(recipe)}: {json.dumps(entry)}" for recipe, entry in recipes.items())


def row(result: Result) -> Row:
    """What the tables need of a result, and the job that it is of."""
    job, record = result.job, result.record.to_dict()
    plain = _without_folders(job)
    return {
        "model": job.model,
        "weights": plain["weights"]["path"] if "weights" in plain else None,
        "dataset": job.dataset,
        "setting": job.setting,
        "recipe": job.recipe,
        "options": dict(job.options),
        "shift": job.shift,
        "corruption": job.corruption,
        "severity": job.severity,
        "seed": job.seed,
        "images": record["images"],
        **{name: record["errors"].get(theirs) for name, theirs in ERRORS.items()},
        **{name: record.get(name) for name in FIGURES},
        "job": plain,
    }


def identity(stored: Row) -> str:
    """The key of its job: of two rows with the same, the newer stays."""
    return _job_of(stored).key


def restored(stored: Row) -> Result:
    """A result with what is known of it."""
    errors = {theirs: stored[name] for name, theirs in ERRORS.items()}
    figures = {name: stored[name] for name in FIGURES}
    counts = {"images": stored["images"], "labelled": stored["images"]}  # all of ours have labels
    record = {**counts, "errors": errors, **figures, RESTORED: True}
    return Result(job=_job_of(stored), record=Record.from_dict(record))


def everything(*, leave_out: Collection[str] = ()) -> list[Result]:
    """The exported results of all plans but some, and what was reproduced."""
    names = [name for name in NAMES if name not in leave_out]
    return [*(restored(each) for name in names for each in exported(name)), *reproduced()]


def reproduced() -> list[Result]:
    """What ``acclimate reproduce tbl:self-ensembling --json`` measured, a job for each cell."""
    (table,) = json.loads((RESULTS / "self_ensembling.json").read_text(encoding="utf-8"))["tables"]
    cells = {(cell.row, cell.column): cell for cell in find_table(table["label"]).cells}
    found = []
    for stored in table["rows"]:
        if stored["status"] != "measured":
            continue
        cell = cells[stored["row"], stored["column"]]
        chosen = (pair.rsplit(" ", 1) for pair in stored["setting"].split(", ") if pair)
        options = {name: float(number) for name, number in chosen}
        job = Job.of(model=cell.model, dataset=cell.dataset, recipe=cell.recipe, options=options)
        images, oracle = stored["images"], [n for n in stored["notes"] if "oracle" in n]
        record = {"errors": {"final": 100 - stored["measured"]}, "notes": oracle, RESTORED: True}
        counts = {"images": images, "labelled": images}
        found.append(Result(job=job, record=Record.from_dict({**record, **counts})))
    return found


def _job_of(stored: Row) -> Job:
    """The job of a row, of which the oldest do not have it whole."""
    if "job" in stored:
        return Job.from_dict(stored["job"])
    names = ("model", "dataset", "recipe", "shift", "options", "seed", "setting")
    known = {name: stored[name] for name in names if stored[name] is not None}
    return Job.from_dict({**known, "weights": {"path": stored["weights"], "sha256": NOT_KEPT}})


def _without_folders(job: Job) -> dict[str, Any]:
    """A job in plain values, its weights known by their content, in whatever folder."""
    plain = job.to_dict()
    if "weights" in plain:
        plain["weights"]["path"] = Path(plain["weights"]["path"]).name
    return plain


def main() -> int:
    """Run, export, restore, or check the page of states."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one, *others = (commands.add_parser(name) for name in ("run", "export", "restore"))
    for each in (one, *others):
        some = "?" if each.prog.endswith("restore") else None
        each.add_argument("name", choices=NAMES, metavar="NAME", nargs=some, help=", ".join(NAMES))
        each.add_argument("--store", type=Path, required=True)
    one.add_argument("--root", required=True, help="folder of the data sets, or NAME=DIR of one")
    one.add_argument("--stages", type=int, nargs="+", help="only these, counted from 1")
    one.add_argument("--workers", type=int, help="processes")
    one.add_argument("--images", type=int, help="fewer of each shift")
    left = "only what results/NAME.json and results/choices do not have"
    one.add_argument("--missing", action="store_true", help=left)
    one.add_argument("--shifts", nargs="+", help="only these, to rehearse")
    one.add_argument("--device", help="cuda where there is one")
    folder = "a folder to export to at the end, whatever came of it; for another machine's results"
    one.add_argument("--export", type=Path, help=folder)
    some = "stop then, as by Ctrl-C: the same command resumes"
    one.add_argument("--seconds", type=float, help=some)
    price = commands.add_parser("cost")
    price.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    price.add_argument("--images", type=int, help="of each shift, where not as published")
    rate = "forward passes a second, all workers together (default: %(default)s)"
    price.add_argument("--rate", type=int, default=20_000, help=rate)
    page = commands.add_parser("status")
    page.add_argument("--page", type=Path, default=HERE.parent / "docs" / "published.md")
    page.add_argument("--write", action="store_true", help="put the states into the page")
    package = commands.add_parser("ship")
    package.add_argument("--write", action="store_true", help="put the choices into the package")
    args = parser.parse_args()
    made = {
        "run": run, "export": export, "restore": restore, "status": status, "ship": ship,
        "cost": cost,
    }  # fmt: skip
    return made[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
