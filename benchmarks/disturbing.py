"""Commands that run for long, what can go wrong under them, and what is in their folders then.

Commands run in forked processes, which begin to work at once, as ``acclimate`` itself does but
without its start-up.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acclimate import cli
from acclimate.adaptation.adapt import adapt
from acclimate.bench import Store
from acclimate.checkpoint import previous_of, read_tensors
from acclimate.errors import AcclimateError
from acclimate.lock import LOCK
from acclimate.pretraining.training import CHECKPOINT as PRETRAINING
from acclimate.reading import read_json

PATIENCE = 120.0
"""Seconds: a command that takes longer hangs."""
PAGE = 4096
CHECKPOINT_SECONDS = 0.1
"""Of `adapt`: its 30 seconds are for hours, and these runs take one."""
MARKS = (LOCK, "-sweep", "-wal", "-shm")
"""Who writes, and what SQLite keeps beside a file: emptied or removed by the next one."""
TIMED = {"seconds", "loading_seconds", "images_per_second", "created", "memory", "device_memory"}
"""What differs from run to run: what was measured with a clock, or of the machine."""

SWEEP = ["--models", "acclimate:digits", "--datasets", "mnist", "--root", "{data}", "--incomplete"]
SWEEP += ["--device", "cpu", "--recipes", "ent", "--lr", "1e-2,1e-3", "--seeds", "0", "1"]
COMMANDS: dict[str, list[str]] = {
    "adapt": [
        *("adapt", "--model", "acclimate:digits", "--images", "{data}/foggy.npz"),
        *("--recipe", "ent", "--epochs", "4", "--batch-size", "20", "--speed", "exact"),
        *("--device", "cpu", "--out", "{out}"),
    ],
    "corrupt, cifar": [
        *("corrupt", "{data}/clean.npz", "{out}", "--preset", "cifar", "--shift", "dev"),
    ],
    "corrupt, imagenet": [
        *("corrupt", "{data}/clean.npz", "{out}", "--preset", "imagenet", "--shift", "dev"),
    ],
    "evaluate": [
        *("evaluate", "--model", "acclimate:digits", "--images", "{data}/clean.npz"),
        *("--shift", "cifar/fog", "--shift", "cifar/contrast", "--recipe", "bn"),
        *("--device", "cpu", "--out", "{out}"),
    ],
    "bench": [
        *("bench", *SWEEP, "--shifts", "cifar/fog:2", "cifar/contrast:3", "--epochs", "2"),
        *("--store", "{out}/bench.db"),
    ],
    "tune": [
        *("tune", *SWEEP, "--shifts", "cifar/spatter", "--severities", "2", "3", "--epochs", "2"),
        *("--store", "{out}/tune.db", "--out", "{out}/choice.json"),
    ],
    "pretrain": [
        *("pretrain", "--model", "acclimate:digits", "--dataset", "mnist", "--root", "{data}"),
        *("--incomplete", "--epochs", "6", "--batch-size", "20", "--lr", "0.01"),
        *("--device", "cpu", "--out", "{out}"),
    ],
}


@dataclass(frozen=True)
class End:
    """How a process ended; a negative status is the signal that killed it, None that it hung."""

    status: int | None
    text: str

    @property
    def clear(self) -> bool:
        """Killed from outside, or ended by itself and, where with an error, with words for it."""
        if self.status is None or "Traceback" in self.text:
            return False
        return self.status <= 0 or self.status in (3, 4) or "acclimate: " in self.text


@dataclass(frozen=True)
class Undisturbed:
    """What a command does when nothing happens to it."""

    contents: dict[str, str]
    status: int
    seconds: float
    size: int


@dataclass
class Case:
    """A command in a folder of its own; ``anew``: started as a program, not forked."""

    command: str
    data: Path
    out: Path
    usual: Undisturbed | None = None
    anew: bool = False
    draw: random.Random = field(default_factory=random.Random)

    @property
    def argv(self) -> list[str]:
        places = {"data": str(self.data), "out": str(self.out)}
        return [word.format(**places) for word in [*COMMANDS[self.command], "--quiet"]]

    @property
    def log(self) -> Path:
        return self.out.with_suffix(".log")

    def start(self) -> int:
        """The command in a process of its own; its id."""
        self.out.mkdir(parents=True, exist_ok=True)
        return started(self.argv, self.log, anew=self.anew)

    def run(self) -> End:
        """The command to its end."""
        pid = self.start()
        return ended(pid, self.log)

    def wait(self, share: float = 1.0) -> None:
        """Until some moment of an undisturbed run."""
        assert self.usual is not None
        time.sleep(self.draw.uniform(0, share * self.usual.seconds))


def started(argv: Sequence[str], log: Path, *, anew: bool = False) -> int:
    """A command in a process of its own; its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(written, 1)
        os.dup2(written, 2)
        if anew:
            os.execv(sys.executable, [sys.executable, "-m", "acclimate", *argv])
        obey_permissions()
        inspect.unwrap(adapt).__kwdefaults__["checkpoint_every"] = CHECKPOINT_SECONDS
        status = cli.main(argv)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def ended(pid: int, log: Path) -> End:
    """Wait for a process, and read what it printed; the log is empty afterwards."""
    deadline = time.monotonic() + PATIENCE
    status: int | None = None
    while status is None and time.monotonic() < deadline:
        gone, how = os.waitpid(pid, os.WNOHANG)
        if gone:
            status = os.waitstatus_to_exitcode(how)
        else:
            time.sleep(0.01)
    if status is None:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    log.unlink(missing_ok=True)
    return End(status, text)


def running(pid: int) -> bool:
    """Whether a process has not ended; how it ended is left for `ended`."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def obey_permissions() -> None:
    """Give up root's privilege of reading and writing what permissions forbid."""
    overriding = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    sets[0] &= ~overriding
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


# The faults. Each disturbs a case once or more, and leaves its folder so that it can be written to.


def kill(case: Case) -> Iterator[End]:
    """By SIGKILL, up to three times in a row."""
    for _ in range(case.draw.randint(1, 3)):
        pid = case.start()
        case.wait()
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        yield ended(pid, case.log)


def full_disk(case: Case) -> Iterator[End]:
    """A disk with room for a part of what is written."""
    assert case.usual is not None
    size = PAGE * case.draw.randint(1, max(2, round(1.2 * case.usual.size / PAGE)))
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(case.out), "-o"]
    subprocess.run([*mount, f"size={size}"], check=True)
    yield case.run()
    subprocess.run([*mount, "remount,size=1g"], check=True)


def read_only(case: Case) -> Iterator[End]:
    """The folder, and all in it, may no longer be written to."""
    pid = case.start()
    case.wait()
    permit(case.out, folders=0o555, files=0o444)
    yield ended(pid, case.log)
    permit(case.out, folders=0o755, files=0o644)


def permit(folder: Path, *, folders: int, files: int) -> None:
    folder.chmod(folders)
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            path.chmod(folders if path.is_dir() else files)


def removed_folder(case: Case) -> Iterator[End]:
    """Somebody removes the folder: file by file, or in one move."""
    pid = case.start()
    case.wait()
    moved = case.draw.choice([case.out, case.out.with_name("removed")])
    case.out.rename(moved)
    while moved.exists():  # new files may come meanwhile
        shutil.rmtree(moved, ignore_errors=True)
    yield ended(pid, case.log)


def second_writer(case: Case) -> Iterator[End]:
    """The same call at the same time."""
    first = case.start()
    case.wait(0.8)
    second = started(case.argv, case.log.with_suffix(".second"))
    yield ended(first, case.log)
    yield ended(second, case.log.with_suffix(".second"))


FAULTS: dict[str, Callable[[Case], Iterator[End]]] = {
    "kill": kill,
    "full disk": full_disk,
    "read-only": read_only,
    "removed folder": removed_folder,
    "second writer": second_writer,
}
# What is in a folder.


def contents(folder: Path) -> dict[str, str]:
    """A digest of each file, but for what a clock measured; what is half written counts, too."""
    return {
        str(path.relative_to(folder)): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(MARKS)
    }


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(_plain(path)).hexdigest()[:16]
    except AcclimateError as error:
        return str(error)


def _plain(path: Path) -> bytes:
    value: Any = path.read_bytes()
    if path.suffix == ".json":
        value = _untimed(read_json(path))
    elif path.suffix == ".db":
        rows = {each.key: each for each in Store(path, create=False).results()}
        value = [
            _untimed({"key": key, "status": rows[key].status, "record": rows[key].record.to_dict()})
            for key in sorted(rows)
        ]
    elif path.name in (PRETRAINING, previous_of(Path(PRETRAINING)).name):
        tensors, record = read_tensors(path)
        value = {key: tensor.numpy().tobytes().hex() for key, tensor in sorted(tensors.items())}
        value["record"] = _untimed(record)
    return value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(each) for key, each in value.items() if key not in TIMED}
    return [_untimed(each) for each in value] if isinstance(value, list) else value


def finished(folder: Path) -> dict[str, object]:
    """Results that are whole, and what tells whether they were made anew."""
    found: dict[str, object] = {}
    for path in folder.rglob("*.db"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            query = "SELECT key, created, record FROM results WHERE status = 'done'"
            found |= {key: tuple(rest) for key, *rest in connection.execute(query)}
    for path in folder.rglob("*.JPEG"):
        found[str(path.relative_to(folder))] = path.stat().st_mtime_ns
    if (folder / "summary.json").exists():
        found["summary.json"] = _digest(folder / "model.safetensors")
    return found


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The files that are not the same."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
