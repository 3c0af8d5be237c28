"""kill -9 at any moment: the server comes back with the last version that was written."""

from __future__ import annotations

import random
import re
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from serving import Process, running

pytest.importorskip("fastapi")

MOMENTS = 2  # twenty are in benchmarks/results/soak.json


def numbers(folder: Path) -> list[int]:
    """The versions whose files are whole, which is all files of that name."""
    found = [re.fullmatch(r"version-(\d+)\.safetensors", path.name) for path in folder.iterdir()]
    return sorted(int(each[1]) for each in found if each)


def load(process: Process, until: threading.Event) -> None:
    """Requests without pause, whatever becomes of them."""
    while not until.is_set():
        with suppress(OSError, HTTPException):
            process.predict(*range(48))


@pytest.mark.timeout(240)
def test_a_killed_server_comes_back_at_the_last_written_version(tmp_path: Path) -> None:
    moments = random.Random(29)
    before = -1
    for _ in range(MOMENTS):
        with running("--state", str(tmp_path), "--every", "1") as process:
            assert process.version == max(before, 0)
            ended = threading.Event()
            clients = [
                threading.Thread(target=load, args=(process, ended), daemon=True) for _ in range(3)
            ]
            for client in clients:
                client.start()
            while max(numbers(tmp_path)) <= before + 3:
                time.sleep(0.01)
            time.sleep(moments.random())
            process.process.kill()
            process.process.wait()
            ended.set()
            for client in clients:
                client.join()
        assert max(numbers(tmp_path)) > before
        before = max(numbers(tmp_path))
        assert len(numbers(tmp_path)) <= 22  # killed before the oldest was removed
    with running("--state", str(tmp_path), "--every", "1") as process:
        assert process.version == before
        versions = process.get("versions")
        assert versions["serving"] == before
        assert process.predict(0)[1]["version"] >= before
