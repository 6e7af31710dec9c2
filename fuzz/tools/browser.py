"""Headless Chromium over its debugging pipe: as much as tests of a page need, with the standard library alone.

Two pipes carry JSON messages that end in a zero byte; there is no port and no driver to install.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Tab": 9}


def chromium() -> str | None:
    """The browser: the environment's CHROMIUM, or the first of `NAMES` on the path."""
    return os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page in one headless browser. `problems`: console errors, uncaught exceptions, requests beyond files."""

    def __init__(self, width: int = 1280, height: int = 900, scale: float = 1.0) -> None:
        executable = chromium()
        assert executable is not None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_by_it, self._to = os.pipe()
        self._from, written_by_it = os.pipe()

        def connect() -> None:
            # The protocol wants descriptors 3 and 4; the ends may have these numbers already, crossed.
            first, second = os.dup(read_by_it), os.dup(written_by_it)
            os.dup2(first, 3)
            os.dup2(second, 4)

        flags = (
            "--headless=new --remote-debugging-pipe --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
            "--hide-scrollbars --disable-extensions --disable-background-networking --disable-component-update "
            f"--force-device-scale-factor={scale:g} --window-size={width},{height}"
        )
        self._process = subprocess.Popen(
            [executable, *flags.split(), f"--user-data-dir={self._profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=connect,
            start_new_session=True,
        )
        os.close(read_by_it)
        os.close(written_by_it)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = 0
        self.problems: list[str] = []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            self.call(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser; its children end with it."""
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> Any:
        """One command of the protocol and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self, seconds: float = 60) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            got = os.read(self._from, 1 << 16)
            if not got:
                raise EOFError("Chromium has ended")
            self._buffer += got
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        self._note(answer)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded += 1
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.problems.append(str(details.get("exception", {}).get("description") or details["text"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(f"console: {params['args']}")
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:", "about:")):
                    self.problems.append(f"asks for {url}")

    def open(self, path: Path, dark: bool = False) -> None:
        """Load a file, wait for it, and forget earlier problems."""
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.problems.clear()
        before = self._loaded
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self._loaded == before:
            self._next()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Keys as a person presses them, to whatever has the focus."""
        for key in keys:
            code = KEYS.get(key, ord(key.upper()[0]))
            text = {"text": key} if len(key) == 1 else {}
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def shot(self, path: Path, height: int | None = None, selector: str | None = None, margin: int = 0) -> None:
        """A PNG of the window, of the page down to `height`, or of one element."""
        clip = None
        if selector is not None:
            clip = self.run(
                f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                "return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height} })()"
            )
            clip = {
                "x": max(clip["x"] - margin, 0),
                "y": max(clip["y"] - margin, 0),
                "width": clip["width"] + 2 * margin,
                "height": clip["height"] + 2 * margin,
            }
        elif height is not None:
            whole = self.run("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
            clip = {"x": 0, "y": 0, "width": whole[0], "height": min(height, whole[1])}
        extra = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **extra)["data"]))
