"""A headless Chromium, driven by its DevTools protocol over two pipes: no driver program, no port, no library."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from outside import need_program

CHECKS = (Path(__file__).parent / "page_checks.js").read_text()
"""Makes `checks` in a page."""
PATIENCE = 90.0  # seconds for one answer of a browser on a busy machine


class Browser:
    """One browser with one tab. `events` are what it told since `open`, as (method, parameters)."""

    def __init__(self, program: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-browser-"))
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        command = [
            program,
            "--headless=new",
            "--no-sandbox",  # root has none, and the page is our own
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={self.folder}/profile",
            "about:blank",
        ]

        # The browser wants its pipes at 3 and 4, where the shell puts them (bash: others know one digit only).
        words = ["/bin/bash", "-c", f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"', "bash", *command]
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words,
                pass_fds=(to_browser, from_browser),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "HOME": str(self.folder), "TZ": "UTC"},
            )
        os.close(to_browser)
        os.close(from_browser)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._news = threading.Condition()
        self._number = 0
        self._closed = False
        threading.Thread(target=self._listen, daemon=True).start()
        self._session: str | None = None
        targets = self.do("Target.getTargets")["targetInfos"]
        tab = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.do("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.do(f"{domain}.enable")

    def _listen(self) -> None:
        with contextlib.suppress(OSError), os.fdopen(self._in, "rb") as stream:
            rest = b""
            while part := stream.read1(1 << 16):
                *messages, rest = (rest + part).split(b"\0")
                for message in map(json.loads, messages):
                    with self._news:
                        if "id" in message:
                            self._answers[message["id"]] = message
                        else:
                            self.events.append((message["method"], message["params"]))
                        self._news.notify_all()
        with self._news:
            self._closed = True
            self._news.notify_all()

    def do(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol, and its result."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        with self._news:
            arrived = self._news.wait_for(lambda: number in self._answers or self._closed, PATIENCE)
            assert arrived, f"the browser does not answer {method}"
            assert number in self._answers, f"the browser is gone: {self.log.read_text(errors='replace')[-2000:]}"
            answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, url: str) -> None:
        """Go there, and wait until the page is loaded."""
        self.events.clear()
        found = self.do("Page.navigate", url=url)
        assert "errorText" not in found, found
        self.until("document.readyState === 'complete'")

    def js(self, expression: str) -> Any:
        """What an expression is in the page."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str, seconds: float = 90.0) -> Any:
        """Poll until an expression is true in the page, and return it."""
        end = time.monotonic() + seconds
        while not (found := self.js(expression)):
            assert time.monotonic() < end, f"never true: {expression}; the page: {self.text()[:3000]}"
            time.sleep(0.1)
        return found

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.js("document.body.innerText"))

    def key(self, name: str, code: int, shift: bool = False) -> None:
        """Press a key, such as ("Tab", 9)."""
        said = {"key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        down = {"type": "keyDown", "text": "\r"} if name == "Enter" else {"type": "rawKeyDown"}
        self.do("Input.dispatchKeyEvent", **down, **said)
        self.do("Input.dispatchKeyEvent", type="keyUp", **said)

    def zone(self, name: str = "") -> None:
        """Local time is that of this zone, such as Asia/Tokyo; empty: the machine's own."""
        self.do("Emulation.setTimezoneOverride", timezoneId=name)

    def media(self, **features: str) -> None:
        """What the reader prefers, such as prefers_color_scheme="dark"."""
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.do("Emulation.setEmulatedMedia", features=wanted)

    def size(self, width: int, height: int) -> None:
        """How large the window is."""
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, whole: bool = True, height: float | None = None) -> bytes:
        """The page as PNG, or its first so many pixels."""
        more: dict[str, Any] = {}
        if height is not None:
            width = self.js("document.documentElement.clientWidth")
            more["clip"] = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **more)
        return base64.b64decode(shot["data"])

    def requests(self) -> list[str]:
        """All addresses that were asked for."""
        return [p["request"]["url"] for m, p in list(self.events) if m == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Errors and broken policies that the browser told of."""
        said = [p["entry"]["text"] for m, p in list(self.events) if m == "Log.entryAdded"]
        thrown = [json.dumps(p["exceptionDetails"]) for m, p in list(self.events) if m == "Runtime.exceptionThrown"]
        return said + thrown

    def tree(self) -> list[dict[str, Any]]:
        """What a screen reader is told: nodes with `role`, `name` and their state, in order."""
        nodes = self.do("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": n["role"]["value"],
                "name": n.get("name", {}).get("value", ""),
                **{p["name"]: p["value"].get("value") for p in n.get("properties", ())},
            }
            for n in nodes
            if not n["ignored"]
        ]

    def down(self) -> None:
        """End it with all its processes."""
        with contextlib.suppress(OSError):
            os.close(self._out)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser that is gone after it; without Chromium the test is skipped (in CI: failed)."""
    it = Browser(need_program("chromium", "chromium fonts-liberation"))
    try:
        yield it
    finally:
        it.down()


def poll(probe: Callable[[], Any], what: str, seconds: float = 90.0) -> Any:
    """Poll until `probe` gives something true, and return it."""
    end = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < end, f"timed out waiting for {what}"
        time.sleep(0.1)
    return found
