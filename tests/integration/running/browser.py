"""Chromium over the DevTools protocol, and pages of another origin."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from integration.running.programs import DEADLINE
from suite.marionette import promise_of

PIPED = """
import os, sys
reads, writes, *command = sys.argv[1:]
for number, copy in ((int(reads), 13), (int(writes), 14)):
    os.dup2(number, copy)
os.dup2(13, 3)
os.dup2(14, 4)
os.execvp(command[0], command)
"""
"""Descriptors from which Chromium reads commands and to which it writes answers."""


SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"


class Browser:
    """Chromium with one page, over the DevTools protocol.

    :ivar errors: uncaught exceptions of the page.
    :ivar said: console output of scripts, and log entries of the browser about the page.
    """

    def __init__(self, command: list[str]) -> None:
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        words = [sys.executable, "-c", PIPED, str(theirs_in), str(theirs_out), *command, "--remote-debugging-pipe"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(words, pass_fds=(theirs_in, theirs_out), start_new_session=True, **quiet)  # type: ignore[call-overload]
        os.close(theirs_in)
        os.close(theirs_out)
        self._number, self._rest, self._session = 0, b"", ""
        self._loaded: set[str] = set()
        self.errors: list[str] = []
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        """Return the next answer or event; record the contents of events."""
        while b"\0" not in self._rest:
            # Twice the timeout of conditions on the page.
            assert select.select([self._read], [], [], 2 * DEADLINE)[0], "the browser is silent"
            data = os.read(self._read, 65_536)
            assert data, "the browser ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        parameters = found.get("params", {})
        match found.get("method"):
            case "Page.lifecycleEvent" if parameters["name"] == "load":
                self._loaded.add(parameters["loaderId"])
            case "Runtime.exceptionThrown":
                self.errors.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.said.append(str(parameters["args"]))
            case "Log.entryAdded":
                self.said.append(str(parameters["entry"]))
        return found

    def run(self, script: str) -> Any:
        """Return the value of a script."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, (script, answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition holds on the page."""
        assert self.run(promise_of(condition, DEADLINE)), f"never: {condition}\n{self.run('document.body.innerText')}"

    def before_scripts(self, script: str) -> None:
        """Run a script in each page opened from now on, before those of the page."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def go(self, url: str) -> None:
        """Open a page and wait until it has loaded."""
        went = self.call("Page.navigate", url=url)
        assert "errorText" not in went, (url, went)
        while went["loaderId"] not in self._loaded:
            self._next()

    def key(self, name: str, **more: Any) -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36}
        codes |= {f"Arrow{side}": code for code, side in enumerate(("Left", "Up", "Right", "Down"), 37)}
        more |= {"key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
        text = {"text": "\r"} if name == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **more, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def type(self, text: str) -> None:
        """Enter text into the focused element."""
        self.call("Input.insertText", text=text)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size and the colour scheme of the page, and wait for them."""
        metrics = {"width": width, "height": height, "screenWidth": width, "screenHeight": height}
        self.call("Emulation.setDeviceMetricsOverride", **metrics, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.until(f"screen.width === {width} && matchMedia('(prefers-color-scheme: {scheme['value']})').matches")

    def show_figures(self, url: str, width: int, height: int, *, dark: bool = False) -> Browser:
        """Open a report, wait until its figures are drawn, and assert that no script failed or was blocked."""
        self.size(width, height, dark=dark)
        self.go(url)
        self.until("document.documentElement.dataset.drawn > 0 || document.getElementById('errors')")
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert self.run("document.getElementById('errors')?.textContent") is None
        assert self.said == self.errors == []
        return self

    def keep(self, name: str) -> Path:
        """Save a screenshot of the page and return its path."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        data = b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        assert data.startswith(b"\x89PNG")
        path = SCREENSHOTS / f"{name}.png"
        path.write_bytes(data)
        return path

    def close(self) -> None:
        """Terminate it with all of its processes."""
        self._session = ""
        with suppress(AssertionError, OSError):  # It may have exited before.
            self.call("Browser.close")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(DEADLINE)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._write)
        os.close(self._read)


class StrangePage:
    """A page of another origin on a web server of its own, which reports the results of its attempts.

    :ivar told: reported results.
    """

    def __init__(self, page: str, host: str) -> None:
        self.told: list[Any] = []
        self._changed = threading.Condition()
        strange = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def do_POST(self) -> None:
                with strange._changed:
                    strange.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                    strange._changed.notify_all()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def wait(self) -> bool:
        """Wait for a report."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self.told, DEADLINE))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Page(Protocol):
    """A page in either browser; see :class:`Browser`."""

    @property
    def errors(self) -> list[str]: ...

    def run(self, script: str) -> Any: ...

    def until(self, condition: str) -> None: ...

    def go(self, url: str) -> None: ...

    def key(self, name: str) -> None: ...

    def type(self, text: str) -> None: ...

    def size(self, width: int, height: int, *, dark: bool = False) -> None: ...

    def keep(self, name: str) -> object: ...


OpenPage = Callable[[], Page]
OpenBrowser = Callable[[], Browser]
OpenStrangePage = Callable[..., Any]
