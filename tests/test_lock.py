"""One folder, one writer: who holds it is named, and the lock of a dead process is taken over."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from acclimate.cli import main
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError
from acclimate.lock import LOCK, claimed


def forked(work: Callable[[], object]) -> int:
    """The id of a process that works, and exits with 0 where nothing is raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


@contextmanager
def held_by_another(folder: Path) -> Iterator[int]:
    """Within this, another process holds a folder; then it is killed."""

    def hold() -> None:
        with claimed(folder):
            time.sleep(60)

    child = forked(hold)
    while not (folder / LOCK).is_file() or not (folder / LOCK).read_text():
        time.sleep(0.005)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_the_second_is_told_who_holds_it_since_when(tmp_path: Path) -> None:
    since = time.strftime("%Y-%m-%dT%H:")
    with held_by_another(tmp_path) as child:
        holder = rf"process {child} on {socket.gethostname()} since {since}\d\d:\d\d"
        with pytest.raises(AcclimateError, match=rf"written to by {holder}.*; wait .* or choose"):
            claimed(tmp_path).__enter__()
        assert (tmp_path / LOCK).exists()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    with held_by_another(tmp_path):
        pass
    assert (tmp_path / LOCK).exists()
    with claimed(tmp_path):
        assert f'"process": {os.getpid()},' in (tmp_path / LOCK).read_text()
    assert list(tmp_path.iterdir()) == []


def test_it_is_given_back_whatever_happens_in_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="mine"), claimed(tmp_path):
        raise OSError("mine")
    with claimed(tmp_path):
        pass


def test_a_thread_may_claim_what_it_has_and_another_may_not(tmp_path: Path) -> None:
    def other() -> None:
        with claimed(tmp_path):
            pass

    with claimed(tmp_path), ThreadPoolExecutor(1) as pool:
        other()
        with pytest.raises(AcclimateError, match=f"process {os.getpid()} on"):
            pool.submit(other).result()
        assert os.waitpid(forked(other), 0)[1] != 0


def test_one_at_a_time_of_many(tmp_path: Path) -> None:
    total = tmp_path / "total"
    total.write_text("0")

    def add() -> None:
        added = 0
        while added < 25:
            try:
                with claimed(tmp_path / "run"):
                    total.write_text(str(int(total.read_text()) + 1))
                    added += 1
            except AcclimateError:
                time.sleep(0.0005)

    children = [forked(add) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert total.read_text() == "100"


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AcclimateError, match=r"cannot write to .*; choose another folder"):
        claimed(tmp_path / "file" / "run").__enter__()


COMMANDS = {
    "adapt": "adapt --model acclimate:digits --images clean.npz --recipe bn",
    "evaluate": "evaluate --model acclimate:digits --images clean.npz",
    "pretrain": "pretrain --model acclimate:wrn-26-1-bn --dataset mnist --root . --epochs 1 "
    "--batch-size 20 --incomplete",
    "corrupt": "corrupt clean.npz run --preset cifar --shift fog:1",
    "theory": "theory --figures none",
}


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_fills_a_folder(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    images, labels = (part[:40] for part in digits("held-out"))
    np.savez("clean.npz", images=images, labels=labels)
    for split in ("train", "test"):
        mnist = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
        np.savez(f"mnist-{split}.npz", images=mnist, labels=np.arange(40) % 10)
    words = [*COMMANDS[command].split(), "--quiet"]
    words += [] if command == "corrupt" else ["--out", "run"]
    words += [] if command in ("corrupt", "theory") else ["--device", "cpu"]
    with held_by_another(tmp_path / "run") as child:
        assert main(words) == 2
        assert f"run is written to by process {child} on" in capfd.readouterr().err
        assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK]
    for _ in range(2):  # the lock of the killed one is taken over, and none is left
        assert main(words) in (0, 3)
        assert not (tmp_path / "run" / LOCK).exists()
        assert len(list((tmp_path / "run").iterdir())) >= 1
