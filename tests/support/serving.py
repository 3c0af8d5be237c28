"""Servers on the embedded digits: without HTTP, and in a process of their own on loopback."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from acclimate.data.digits import PREPROCESSING, digits
from acclimate.models.networks.digits import load_digits_model
from acclimate.serve import Server, Settings

FOGGY, LABELS = digits("held-out", shifted=True)
INPUT = PREPROCESSING.normalize(torch.from_numpy(FOGGY)[:, None])
QUICK = {"optimizer.lr": 1e-2}
TOKEN = "a token of the tests"


def settings(**changes: Any) -> Settings:
    """Small batches, a version after every second step, and no rest between them."""
    quick = {"wait_ms": 1.0, "learn_batch": 32, "learn_share": 1.0, "every": 2}
    return Settings(**{**quick, **changes})


def server(*, folder: Path | None = None, recipe: str = "ent", **changes: Any) -> Server:
    """A server that learns quickly."""
    own = {name: changes.pop(name, None) for name in ("observer", "reference")}
    return Server(
        load_digits_model(),
        recipe,
        options=QUICK if recipe != "bn" else None,
        folder=folder,
        settings=settings(**changes),
        **own,
        speed="exact",
    )


def wait_for(condition: Any, *, seconds: float = 30.0) -> None:
    """Until it holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.01)


def send(target: Server, images: Tensor = INPUT, *, each: int = 8, client: str = "") -> None:
    """Images in small requests, each answered."""
    for part in images.split(each):
        target.predict(part, client=client).result(30)


def learn(target: Server, versions: int) -> None:
    """Send images until there are so many versions more."""
    wanted = target.candidate.number + versions
    until = time.monotonic() + 60
    while target.candidate.number < wanted:
        assert time.monotonic() < until, target.status()
        send(target, INPUT[:256])


def png(index: int) -> bytes:
    """A digit in fog, as a file."""
    file = io.BytesIO()
    Image.fromarray(FOGGY[index]).save(file, "PNG")
    return file.getvalue()


def form(*files: bytes, name: str = "image") -> tuple[bytes, dict[str, str]]:
    """A form with files, and its content type."""
    parts = [
        f'--xyz\r\nContent-Disposition: form-data; name="{name}"; filename="{index}.png"\r\n'
        "Content-Type: image/png\r\n\r\n".encode()
        + data
        + b"\r\n"
        for index, data in enumerate(files)
    ]
    return b"".join(parts) + b"--xyz--\r\n", {"Content-Type": "multipart/form-data; boundary=xyz"}


def call(
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    method: str | None = None,
    timeout: float = 30,
) -> tuple[int, Any]:
    """The status and the JSON (or text) of a response."""
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            status, text = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text.decode()


class Process:
    """`acclimate serve` in a process of its own."""

    def __init__(self, *words: str) -> None:
        options = ["--port", "0", "--learn-batch", "32", "--every", "2", "--learn-share", "1"]
        options += ["--set", "optimizer.lr=1e-2", "--speed", "exact", "--admin-token", TOKEN]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        model = () if "--model" in words else ("--model", "acclimate:digits")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "acclimate", "serve", *model, *options, *words],
            stdout=subprocess.PIPE,
            stderr=self.errors,  # a pipe that nobody reads would stop the server
            text=True,
        )
        assert self.process.stdout is not None
        self.printed = ""
        found = None
        for line in self.process.stdout:
            self.printed += line
            if found := re.search(r"(?:version (\d+)|replicas): (http://\S+)/docs", line):
                break
        if found is None:
            raise AssertionError(self.complaints())
        self.version, self.url = int(found[1] or 0), found[2]

    def predict(self, *indices: int, top: int = 1) -> tuple[int, Any]:
        body, headers = form(*(png(index) for index in indices))
        return call(f"{self.url}/predict?top={top}", body, headers)

    def operate(self, action: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return call(f"{self.url}/{action}", b"", headers, method="POST")

    def get(self, route: str) -> Any:
        return call(f"{self.url}/{route}")[1]

    def end(self) -> str:
        """Ask it to end, as a service manager does; what it printed to stderr."""
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.complaints()

    def complaints(self) -> str:
        """What it printed to stderr so far."""
        self.errors.seek(0)
        return self.errors.read()


@contextmanager
def running(*words: str) -> Iterator[Process]:
    """A server that is killed in the end, if it has not ended itself."""
    process = Process(*words)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.communicate()
