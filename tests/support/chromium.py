"""A headless Chromium, spoken to through a pair of pipes: no driver, no port, no package."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


class Chromium:
    """One tab. ``events`` holds everything it told of without being asked."""

    def __init__(self) -> None:
        self.home = tempfile.mkdtemp(prefix="acclimate-chromium-")
        theirs, self._write = os.pipe()
        self._read, their_end = os.pipe()
        # Chromium wants numbers 3 and 4, so its ends must not have them before.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs, their_end)]
        command = f'exec "$@" 3<&{high[0]} 4>&{high[1]}'
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                command,
                "bash",
                find_chromium(),
                *FLAGS,
                f"--user-data-dir={self.home}",
            ],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (theirs, their_end, *high):
            os.close(fd)
        self._buffer, self._count = b"", 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self._read, 1 << 16) if ready else b""
            if not part:
                raise RuntimeError("Chromium does not answer")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        done = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"]["description"])
        return done["result"].get("value")

    def open(self, path: Path) -> None:
        self.events.clear()
        self.send("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete'")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.run(condition):
            if time.monotonic() > end:
                raise RuntimeError(f"still not: {condition}")
            time.sleep(0.02)

    def screen(
        self, width: int, height: int, *, scheme: str = "light", phone: bool = False
    ) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.send("Emulation.setTouchEmulationEnabled", enabled=phone)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path) -> None:
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def mouse(self, kind: str, x: float, y: float) -> None:
        button = {"button": "left", "buttons": 1, "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("mousePressed", *start)
        self.mouse("mouseMoved", *end)
        self.mouse("mouseReleased", *end)

    def key(self, name: str) -> None:
        for kind in ("keyDown", "keyUp"):
            code = {"ArrowRight": 39, "ArrowLeft": 37, "Tab": 9, " ": 32, "Enter": 13}[name]
            more = {"text": name} if name == " " and kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code, **more
            )

    def complaints(self) -> list[str]:
        """What went to the console or was thrown."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e["method"] in kinds]

    def requests(self) -> list[str]:
        asked = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in asked]

    def close(self) -> None:
        with contextlib.suppress(RuntimeError, OSError):
            self._session = None
            self.send("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for fd in (self._read, self._write):
            os.close(fd)
        shutil.rmtree(self.home, ignore_errors=True)
