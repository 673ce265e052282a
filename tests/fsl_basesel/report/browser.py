"""A real browser for the tests: Chromium through its debugging pipe, which needs no driver."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--no-first-run",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and writes answers to 4.
START = """
import os, sys
ends = [os.dup(os.dup(os.dup(int(fd)))) for fd in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The program, if one is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page at a time; commands and events of the DevTools protocol, one JSON text each."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        profile = f"--user-data-dir={self.profile}"
        to_read, self.output = os.pipe()
        self.input, to_write = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(to_read), str(to_write), program, *FLAGS, profile],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.session = 0, b"", None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        os.close(self.output)
        os.close(self.input)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(60)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.input], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self.input, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError("Chromium does not answer")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def show(self, page: Path, scheme: str = "light", scripts: bool = True) -> None:
        """Open a page and wait until it is loaded."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        size = {"width": 1200, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.events.clear()
        self.send("Page.navigate", url=page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(60))

    def value(self, expression: str) -> Any:
        """What an expression comes to in the page; works with the page's own scripts off."""
        tree = self.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = self.send("Page.createIsolatedWorld", frameId=tree)["executionContextId"]
        answer = self.send(
            "Runtime.evaluate", expression=expression, contextId=world, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def point_at(self, selector: str) -> None:
        """Move the mouse onto the first element that matches."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({selector!r});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    def screenshot(self) -> bytes:
        """The visible part of the page as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    @property
    def faults(self) -> list[str]:
        """What the console shows: errors, warnings, exceptions."""
        found = []
        for event in self.events:
            about = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(about["exceptionDetails"].get("text")))
            elif event["method"] == "Log.entryAdded" and about["entry"]["level"] != "verbose":
                found.append(about["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(str(about["args"]))
        return found

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for, the page's own and data within it not counted."""
        sent = [e["params"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        urls = [one["request"]["url"] for one in sent]
        return [url for url in urls if not url.startswith(("data:", "file:", "about:"))]
