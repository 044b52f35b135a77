"""A real Chromium without a window, driven over a pair of pipes: no library, no port for others to use."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

PATIENCE_SECONDS = 240
"""A browser that hangs is ended then, and the test fails."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {"ArrowDown": 40, "ArrowUp": 38, "PageDown": 34, "PageUp": 33, "Home": 36, "End": 35, "Enter": 13}
KEYS |= {"Escape": 27, "Tab": 9}


# The browser reads from file 3 and writes to file 4.
_PUT_IN_PLACE = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A browser tab. ``console`` has the output of scripts and violations of the page's policy,
    ``requests`` every requested address."""

    def __init__(self, writer: BinaryIO, reader: BinaryIO) -> None:
        self._writer, self._reader, self._number = writer, reader, 0
        self._session: str | None = None
        self.console: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        self._writer.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._reader.read(1)) != b"\0":
            assert byte, "Chromium is gone"
            data += byte
        answer: dict[str, Any] = json.loads(data)
        match answer.get("method"):
            case "Runtime.exceptionThrown":
                self.console.append(json.dumps(answer["params"]["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.console.append(json.dumps(answer["params"]["args"]))
            case "Log.entryAdded":
                self.console.append(answer["params"]["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            case "Page.loadEventFired":
                self._loaded = True
        return answer

    def open(self, file: Path, fragment: str = "") -> None:
        """Returns when the page is there and was drawn."""
        self.go("about:blank")
        self.go(file.as_uri() + (f"#{fragment}" if fragment else ""))
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def go(self, url: str) -> None:
        """Returns when the page is loaded."""
        self._loaded = False
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._read()

    def evaluate(self, script: str) -> Any:
        """The value of an expression. Promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def press(self, key: str, times: int = 1) -> None:
        """Returns when the page has had the keys: a busy Chromium answers before that."""
        before = self.evaluate("window.keys ??= (addEventListener('keyup', () => { keys += 1 }, true), 0)")
        for _ in range(times):
            for kind in ("rawKeyDown", "keyUp"):
                code = KEYS[key]
                self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
        had = f"keys >= {before + times}"
        self.evaluate(f"new Promise(done => {{ (look = () => {had} ? done() : setTimeout(look, 2))() }})")

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def size(self, width: int, height: int) -> None:
        more = {"deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, **more)

    def prefer(self, colours: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A separate browser with one tab, which is closed at the end of the block."""
    command = find_chromium()
    assert command is not None
    to_browser, from_browser = os.pipe(), os.pipe()
    ends = to_browser[0], from_browser[1]
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    place = [f"--user-data-dir={profile}", "--no-first-run", "--remote-debugging-pipe", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-c", _PUT_IN_PLACE, *map(str, ends), command, *switches, *place],
        pass_fds=ends,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in ends:
        os.close(end)
    watchdog = threading.Timer(PATIENCE_SECONDS, process.kill)
    watchdog.start()
    with os.fdopen(to_browser[1], "wb") as writer, os.fdopen(from_browser[0], "rb") as reader:
        try:
            yield Page(writer, reader)
        finally:
            watchdog.cancel()
            process.terminate()
            process.wait(timeout=20)
