"""A minimal WebDriver client (plain HTTP to chromedriver): all that the tests of the page need, and no more."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (executable for name in ("chromium", "chromium-browser", "google-chrome") if (executable := shutil.which(name))),
    None,
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "about:blank",
)


class Browser:
    """Headless Chromium. Use as a context manager."""

    def __init__(self, width: int = 1400, height: int = 900) -> None:
        assert CHROMIUM is not None
        assert DRIVER is not None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.profile = tempfile.mkdtemp(prefix="relatum-browser-")
        self.driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.base = f"http://127.0.0.1:{port}"
        try:
            self._wait_for_driver()
            options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={self.profile}"]}
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
            session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self.base += f"/session/{session['sessionId']}"
            self.size(width, height)
            self.requests()  # the browser's own start page
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        if "/session/" in self.base:
            self._call("DELETE", "")
        self.driver.terminate()
        self.driver.wait(10)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _wait_for_driver(self) -> None:
        for _ in range(100):
            try:
                self._call("GET", "/status")
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("chromedriver does not answer")

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(json.load(error)["value"]["message"]) from None

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width: int, height: int, mobile: bool = False) -> None:
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def media(self, scheme: str = "light", media: str = "screen") -> None:
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.cdp("Emulation.setEmulatedMedia", media=media, features=features)

    def open(self, page: Path) -> float:
        """Open a file and wait until its thumbnails are decoded; seconds it took."""
        began = time.monotonic()
        self._call("POST", "/url", {"url": page.resolve().as_uri()})
        while not self.run("return document.documentElement.dataset.ready === 'true'"):
            if time.monotonic() - began > 30:
                raise RuntimeError(f"the page does not get ready: {self.console()}")
            time.sleep(0.02)
        return time.monotonic() - began

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def mouse(self, x: float, y: float, *, click: bool = False, drag_to: tuple[float, float] | None = None) -> None:
        def move(x: float, y: float) -> dict[str, Any]:
            return {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}

        actions = [move(x, y)]
        press, release = {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}
        if drag_to is not None:
            actions += [press, move((x + drag_to[0]) / 2, (y + drag_to[1]) / 2), move(*drag_to), release]
        elif click:
            actions += [press, release]
        pointer = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}
        self._call("POST", "/actions", {"actions": [pointer]})

    def keys(self, *keys: str) -> None:
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def console(self) -> list[str]:
        """Errors of the console since the last call."""
        return [
            entry["message"]
            for entry in self._call("POST", "/se/log", {"type": "browser"})
            if entry["level"] == "SEVERE"
        ]

    def requests(self) -> list[str]:
        """Addresses asked for since the last call; data URIs and the browser's own start page are left out."""
        events = [
            json.loads(entry["message"])["message"] for entry in self._call("POST", "/se/log", {"type": "performance"})
        ]
        urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "chrome"))]

    def screenshot(self, path: Path, full: bool = True) -> None:
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(shot["data"]))
