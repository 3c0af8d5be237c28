"""Requests a second and latency of `acclimate serve` beside a plain FastAPI + PyTorch server.

    python benchmarks/serve.py [--seconds S] [--rounds N] [--clients N] [--model SPEC] [--out FILE]

Every server runs in a process of its own on loopback, one at a time, all in each round; clients
send one PNG a request over kept connections, each as soon as the one before has been predicted,
from another process. The plain server is that of the tutorials: an upload, a forward pass, JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SERVERS = ("plain", "frozen", "shadow", "live")
MODEL = "acclimate:digits"
LEARNING = ["--learn-batch", "64"]


def images() -> tuple[list[bytes], list[int]]:
    """Digits in fog as PNG files, and what they are."""
    from PIL import Image

    from acclimate.data.digits import digits

    pixels, labels = digits("held-out", shifted=True)
    files = []
    for each in pixels:
        file = io.BytesIO()
        Image.fromarray(each).save(file, "PNG")
        files.append(file.getvalue())
    return files, [int(label) for label in labels]


def serve_plainly(model: str) -> None:
    """The server one would write by hand."""
    import socket

    import numpy as np
    import torch
    import uvicorn
    from fastapi import FastAPI, UploadFile
    from PIL import Image

    from acclimate.models import load

    loaded = load(model)
    assert loaded.preprocessing is not None
    wanted, app = loaded.preprocessing, FastAPI()

    def predict(image: UploadFile) -> dict[str, Any]:
        with Image.open(image.file) as opened:
            pixels = torch.from_numpy(np.array(wanted.fit(opened.convert("L"))))[None]
        with torch.inference_mode():
            shares = loaded.model(wanted.normalize(pixels)).softmax(dim=1)[0]
        index = int(shares.argmax())
        return {"predictions": [{"index": index, "probability": float(shares[index])}]}

    predict.__annotations__ = {"image": UploadFile, "return": dict[str, Any]}
    app.post("/predict")(predict)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/docs", flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


@dataclass
class Seen:
    """What the clients of one server saw."""

    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    wrong: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    def add(self, other: Seen) -> None:
        self.latencies += other.latencies
        self.wrong += other.wrong
        self.seconds += other.seconds
        self.cpu += other.cpu
        for status, count in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + count


async def client(
    place: tuple[str, int],
    requests: Sequence[bytes],
    labels: Sequence[int],
    until: float,
    seen: Seen,
) -> None:
    """One connection, one request after the other."""
    reader, writer = await asyncio.open_connection(*place)
    index = id(writer) % len(requests)
    while (began := time.perf_counter()) < until:
        writer.write(requests[index])
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert found is not None
        body = await reader.readexactly(int(found[1]))
        seen.latencies.append(time.perf_counter() - began)
        status = int(head[9:12])
        seen.statuses[status] = seen.statuses.get(status, 0) + 1
        if status == 200:
            predicted = re.search(rb'"index":(\d+)', body)
            assert predicted is not None
            seen.wrong += int(predicted[1]) != labels[index]
        index = (index + 1) % len(requests)
    writer.close()


def cpu_seconds(process: int) -> float:
    """The processor time a process has used, all threads together."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(url: str, process: int, *, clients: int, seconds: float) -> Seen:
    """What many clients see for so many seconds."""
    host = urlsplit(url)
    assert host.hostname is not None
    assert host.port is not None
    files, labels = images()
    requests = []
    for file in files:
        body = (
            b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n'
            b"Content-Type: image/png\r\n\r\n" + file + b"\r\n--x--\r\n"
        )
        head = (
            f"POST /predict HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Type: multipart/form-data; "
            f"boundary=x\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    place, seen = (host.hostname, host.port), Seen()
    await asyncio.gather(
        *(client(place, requests, labels, time.perf_counter() + 1, Seen()) for _ in range(clients))
    )
    began, used = time.perf_counter(), cpu_seconds(process)
    await asyncio.gather(
        *(client(place, requests, labels, began + seconds, seen) for _ in range(clients))
    )
    seen.seconds, seen.cpu = time.perf_counter() - began, cpu_seconds(process) - used
    return seen


def measure(server: str, model: str, *, clients: int, seconds: float) -> tuple[Seen, int]:
    """What clients of one server see, and its last version."""
    ours = [sys.executable, "-m", "acclimate", "serve", "--model", model, "--port", "0"]
    ours += ["--mode", server, *LEARNING]
    words = [sys.executable, __file__, "--plain", "--model", model] if server == "plain" else ours
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        found = next(f for line in process.stdout if (f := re.search(r"(http:\S+)/docs", line)))
        seen = asyncio.run(load(found[1], process.pid, clients=clients, seconds=seconds))
        return seen, _version(found[1]) if server != "plain" else 0
    finally:
        process.terminate()
        process.wait()


def _version(url: str) -> int:
    from urllib.request import urlopen

    with urlopen(f"{url}/versions") as response:
        return int(json.load(response)["candidate"])


def row(server: str, seen: Seen, versions: int) -> dict[str, Any]:
    """Figures of one server."""
    cuts = statistics.quantiles(seen.latencies, n=100)
    answered = seen.statuses.get(200, 0)
    return {
        "server": server,
        "requests": len(seen.latencies),
        "not_answered": len(seen.latencies) - answered,
        "requests_per_second": round(len(seen.latencies) / seen.seconds, 1),
        "p50_ms": round(1000 * cuts[49], 2),
        "p99_ms": round(1000 * cuts[98], 2),
        "cpu_ms_per_request": round(1000 * seen.cpu / len(seen.latencies), 3),
        "error_percent": round(100 * seen.wrong / max(answered, 1), 1),
        "versions": versions,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print one table; ``--out`` writes it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=SERVERS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.plain:
        serve_plainly(args.model)
        return 0
    servers: Sequence[str] = args.servers
    seen = {server: Seen() for server in servers}
    versions = dict.fromkeys(servers, 0)
    for _ in range(args.rounds):
        for server in servers:
            found, versions[server] = measure(
                server, args.model, clients=args.clients, seconds=args.seconds
            )
            seen[server].add(found)
    rows = [row(server, seen[server], versions[server]) for server in servers]
    frozen = next((each for each in rows if each["server"] == "frozen"), rows[-1])
    for each in rows:
        each["of_frozen"] = round(each["requests_per_second"] / frozen["requests_per_second"], 3)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()}-core CPU, one torch thread a process",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "fastapi", "uvicorn")},
        "load_average": round(os.getloadavg()[0], 1),
        "model": args.model,
        "seconds": args.seconds,
        "rounds": args.rounds,
        "clients": args.clients,
        "rows": rows,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    head = ("req/s", "p50 ms", "p99 ms", "of frozen", "cpu ms", "error %")
    print(f"{'server':10}" + "".join(f"{name:>10}" for name in head))
    for each in rows:
        figures = ("requests_per_second", "p50_ms", "p99_ms", "of_frozen", "cpu_ms_per_request")
        shown = "".join(f"{each[name]:10.2f}" for name in (*figures, "error_percent"))
        print(f"{each['server']:10}{shown}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
