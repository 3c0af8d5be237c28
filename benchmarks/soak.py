"""Load with faults on `acclimate serve`: kill -9, poison, broken and huge images, many clients.

    python benchmarks/soak.py [--seconds S] [--clients N] [--kills N] [--replicas N] [--out FILE]

First the server is killed (`kill -9`) so many times at random moments, and started again in the
same folder: it has to serve the version that was the last in it. Then it runs on for so many
seconds, whose memory is compared between begin and end. All the time so many clients send images:
digits in fog, digits of one class, noise; NaN, files that are cut, images of too many pixels,
bodies over the limit, and requests that are left half way. A request that should be answered is
lost if it is not within two minutes of retries; a status other than the one that its kind should
have is wrong. With `--replicas` on Ray, where it is the replicas and the learner that are killed.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import urlopen

OPTIONS = ["--learn-batch", "32", "--every", "2", "--set", "optimizer.lr=1e-2", "--keep", "5"]
PATIENCE = 120.0
ANSWERED = {200}
REFUSED = {413, 422}


@dataclass(frozen=True)
class Kind:
    """What a client sends, how often, and the statuses that are right."""

    weight: int
    requests: Sequence[bytes]
    right: frozenset[int]


def _http(body: bytes, kind: str, length: int | None = None) -> bytes:
    head = (
        f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body


def _png(pixels: Any) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def kinds() -> dict[str, Kind]:
    """Everything that is sent, made once."""
    import numpy as np

    from acclimate.data.digits import digits

    draw = np.random.default_rng(0)
    foggy, labels = digits("held-out", shifted=True)
    files = [_png(each) for each in foggy]
    noise = draw.integers(0, 256, (50, 8, 8), dtype=np.uint8)
    nan = io.BytesIO()
    np.save(nan, np.full((1, 1, 8, 8), np.nan, np.float32))
    answered, refused = frozenset(ANSWERED), frozenset(REFUSED)
    return {
        "fog": Kind(60, [_http(each, "image/png") for each in files], answered),
        "one class": Kind(
            15,
            [_http(files[index], "image/png") for index in np.flatnonzero(labels == 3)],
            answered,
        ),
        "noise": Kind(10, [_http(_png(each), "image/png") for each in noise], answered),
        "NaN": Kind(5, [_http(nan.getvalue(), "application/x-npy")], refused),
        "cut": Kind(4, [_http(each[:60], "image/png") for each in files[:50]], refused),
        "pixels": Kind(
            2, [_http(_png(np.zeros((6000, 6000), np.uint8)), "image/png")], frozenset({413})
        ),
        "body": Kind(2, [_http(b"", "image/png", 2**30)], frozenset({413})),
        "left": Kind(2, [_http(files[0][:20], "image/png", 5000)], frozenset()),
    }


@dataclass
class Seen:
    """What all clients saw."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    retried: int = 0
    lost: int = 0
    wrong: Counter[tuple[str, int]] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)


class Server:
    """`acclimate serve` in processes of its own, in one folder."""

    def __init__(self, folder: Path, port: int, replicas: int) -> None:
        self.folder, self.port, self.replicas = folder, port, replicas
        self.mark = uuid.uuid4().hex
        self.served = -1
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Until it says that it listens."""
        words = [sys.executable, "-m", "acclimate", "serve", "--model", "acclimate:digits"]
        words += ["--port", str(self.port), "--state", str(self.folder), *OPTIONS]
        if self.replicas:
            words += ["--replicas", str(self.replicas)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCLIMATE_MARK": self.mark}
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"(?:version (\d+)|replicas): http", line):
                self.served = int(found[1] or -1)
                return
        raise SystemExit("the server did not start")

    def get(self, route: str) -> Any:
        with urlopen(f"http://127.0.0.1:{self.port}/{route}", timeout=30) as response:
            text = response.read()
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def written(self) -> int:
        """The newest version whose file is whole, which is all files of that name."""
        found = [re.fullmatch(r"version-(\d+)\.safetensors", p.name) for p in self.folder.iterdir()]
        return max((int(each[1]) for each in found if each), default=0)

    def processes(self, name: str) -> list[int]:
        """Of Ray's, those that belong to this server."""
        found = []
        for path in Path("/proc").iterdir():
            with suppress(OSError):
                if (
                    path.name.isdecimal()
                    and f":{name}".encode() in (path / "cmdline").read_bytes()
                    and self.mark.encode() in (path / "environ").read_bytes()
                ):
                    found.append(int(path.name))
        return sorted(found)

    def has(self) -> dict[str, int]:
        """The version of each replica, by its name; none while the learner cannot be reached."""
        with suppress(OSError):
            return dict(self.get("health")["replicas"])
        return {}

    def memory(self) -> float:
        """Resident, in MiB, of all processes that predict or learn."""
        assert self.process is not None
        ours = (
            [*self.processes("Predictor"), *self.processes("Learner")]
            if self.replicas
            else [self.process.pid]
        )
        total = 0.0
        for each in ours:
            with suppress(OSError):
                text = Path(f"/proc/{each}/status").read_text(encoding="utf-8")
                total += int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024
        return total

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ask it to end; its exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)


async def _once(port: int, request: bytes) -> int:
    """The status of one request, on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(found[1]) if found else 0)
        return int(head[9:12])
    finally:
        writer.close()


async def _leave(port: int, request: bytes) -> None:
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        await writer.drain()
        writer.close()


async def client(
    number: int, port: int, sent: dict[str, Kind], seen: Seen, ended: asyncio.Event, pause: float
) -> None:
    """One request after the other, each until it is answered."""
    draw = random.Random(number)
    names, weights = list(sent), [kind.weight for kind in sent.values()]
    while not ended.is_set():
        name = draw.choices(names, weights)[0]
        kind = sent[name]
        request = draw.choice(kind.requests)
        if not kind.right:
            await _leave(port, request)
            continue
        began = time.monotonic()
        while True:
            try:
                status = await asyncio.wait_for(_once(port, request), 60)
            except (OSError, EOFError, asyncio.TimeoutError):
                status = 0
            if status in kind.right:
                seen.statuses[name, status] += 1
                seen.latencies.append(time.monotonic() - began)
                break
            if status not in (0, 429, 500, 503):  # what a retry is to mend
                seen.wrong[name, status] += 1
                break
            if time.monotonic() - began > PATIENCE:
                seen.lost += 1
                break
            seen.retried += 1
            await asyncio.sleep(draw.uniform(0.1, 0.5))
        await asyncio.sleep(draw.uniform(0, 2 * pause))


async def killings(server: Server, times: int, draw: random.Random) -> list[dict[str, Any]]:
    """Kill it at random moments; what it served afterwards, and how long that took."""
    log = []
    for _ in range(times):
        until = time.monotonic() + 30
        while (
            not server.replicas and server.written() <= server.served and time.monotonic() < until
        ):
            await asyncio.sleep(0.01)
        await asyncio.sleep(draw.uniform(0, 3))
        if server.replicas:
            name = draw.choice(["Predictor", "Learner"])
            victim, before = draw.choice(server.processes(name)), server.has()
            os.kill(victim, signal.SIGKILL)
            began = time.monotonic()
            while True:  # as many as before, with a new one, and all have one version
                there = await asyncio.to_thread(server.processes, name)
                has = await asyncio.to_thread(server.has)
                replaced = victim not in there and (
                    len(there) == 1 if name == "Learner" else bool(has.keys() - before.keys())
                )
                if replaced and len(has) == server.replicas and len(set(has.values())) == 1:
                    break
                await asyncio.sleep(0.1)
            log.append({"killed": name, "agreed_after_s": round(time.monotonic() - began, 1)})
        else:
            await asyncio.to_thread(server.kill)
            written, began = server.written(), time.monotonic()
            await asyncio.to_thread(server.start)
            seconds = round(time.monotonic() - began, 1)
            log.append({"written": written, "served": server.served, "start_s": seconds})
    return log


async def soak(server: Server, args: argparse.Namespace) -> dict[str, Any]:
    """Everything, with the clients at work all the time."""
    sent, seen, ended = kinds(), Seen(), asyncio.Event()
    clients = [
        asyncio.create_task(client(n, args.port, sent, seen, ended, args.pause))
        for n in range(args.clients)
    ]
    kills = await killings(server, args.kills, random.Random(29))
    memory, until = [], time.monotonic() + args.seconds
    while time.monotonic() < until:
        await asyncio.sleep(min(1.0, args.seconds / 20))
        memory.append(await asyncio.to_thread(server.memory))
    ended.set()
    await asyncio.gather(*clients)
    health, text = server.get("health"), server.get("metrics")
    part = max(1, len(memory) // 5)
    warm = memory[part:]
    first, last = (statistics.median(each) for each in (warm[:part], warm[-part:]))
    statuses: dict[str, dict[str, int]] = {}
    for (name, status), count in sorted(seen.statuses.items()):
        statuses.setdefault(name, {})[str(status)] = count
    events = re.findall(r"^acclimate_guard_events_total(?:{.*})? (\S+)$", text, re.MULTILINE)
    return {
        "answered": sum(seen.statuses.values()),
        "statuses": statuses,
        "lost": seen.lost,
        "wrong": {f"{name}: {status}": count for (name, status), count in seen.wrong.items()},
        "retried": seen.retried,
        "p99_s": round(statistics.quantiles(seen.latencies, n=100)[98], 2),
        "kills": kills,
        "memory_mib": {"first": round(first), "last": round(last), "growth": round(last - first)},
        "versions": health["candidate"],
        "guard_events": sum(map(float, events)),
        "exit_status": server.end(),
    }


def markdown(result: dict[str, Any]) -> str:
    """A stored result as a table for docs/serving.md."""
    kills = result["kills"]
    if result["replicas"]:
        counts = Counter(each["killed"] for each in kills)
        took = sorted(each["agreed_after_s"] for each in kills)
        how = (
            f"{counts['Predictor']} replicas and {counts['Learner']} learners; all had one "
            f"version again after {took[0]:g} to {took[-1]:g} s"
        )
    else:
        right = sum(each["served"] == each["written"] for each in kills)
        took = sorted(each["start_s"] for each in kills)
        how = (
            f"{len(kills)} times; {right} times it came back with the last version written, after "
            f"{took[0]:g} to {took[-1]:g} s"
        )
    memory = result["memory_mib"]
    rows = {
        "requests answered or refused as they should be": f"{result['answered']:,}",
        "requests lost": f"{result['lost']}",
        "wrong statuses": f"{sum(result['wrong'].values())}",
        "sent again (429, or while a process was down)": f"{result['retried']:,}",
        "`kill -9`": how,
        "versions made": f"{result['versions']:,}",
        f"memory, over the last {result['seconds']:g} s": (
            f"{memory['first']:,} → {memory['last']:,} MiB"
        ),
    }
    lines = [
        "| what | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows.items()),
    ]
    about = (
        f"acclimate:digits, {result['machine']}, load average {result['load_average']:g} at the "
        f"end; {result['clients']} clients; {result['all_seconds']} s in all; {result['date']}."
    )
    return "\n".join(lines) + f"\n\n{about}"


@contextmanager
def started(args: argparse.Namespace) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        server = Server(Path(folder), args.port, args.replicas)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print what matters, and write it as JSON with ``--out``; 1 where something was lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=0)
    pause = "mean seconds a client rests after each request"
    parser.add_argument("--pause", type=float, default=1.0, help=pause)
    parser.add_argument("--port", type=int, default=8473)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    began = time.monotonic()
    with started(args) as server:
        found = asyncio.run(soak(server, args))
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()}-core CPU, one torch thread a process",
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions_of": {name: version(name) for name in ("torch", "fastapi", "uvicorn")},
        **{k: getattr(args, k) for k in ("seconds", "clients", "replicas", "pause")},
        "all_seconds": round(time.monotonic() - began),
        **found,
    }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    as_written = all(each.get("served") == each.get("written") for each in result["kills"])
    return int(bool(result["lost"] or result["wrong"] or not as_written))


if __name__ == "__main__":
    raise SystemExit(main())
