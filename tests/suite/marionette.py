"""Firefox with one page, over the Marionette protocol: JSON messages prefixed with length and colon."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

DEADLINE = 120.0

PREFERENCES = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "datareporting.policy.dataSubmissionEnabled": False,
    "marionette.port": 0,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,#remote-settings-dummy/v1",
    "toolkit.telemetry.enabled": False,
    "ui.prefersReducedMotion": 1,
}
"""Let Firefox choose the port and make no connections of its own."""


SCHEME = "layout.css.prefers-color-scheme.content-override"
"""Preference: 0 for the dark scheme, 1 for the light one."""

ERRORS = """Services.console.getMessageArray().filter((one) => one instanceof Ci.nsIScriptError
    && !(one.flags & Ci.nsIScriptError.warningFlag) && /^(https?|data|blob):/.test(one.sourceName))
    .map((one) => one.errorMessage)"""
"""Errors of pages in the console of the browser."""

KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "End": "\ue010",
    "Home": "\ue011",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}
"""Code points of keys in WebDriver."""


def promise_of(condition: str, seconds: float) -> str:
    """Return a script whose promise tells whether ``condition`` held on the page within ``seconds``."""
    return f"""new Promise((done) => {{
        const end = performance.now() + {seconds * 1_000};
        const look = () => {{
            let found = false;
            try {{ found = Boolean({condition}); }} catch (error) {{ }}
            if (found || performance.now() > end) done(found);
            else setTimeout(look, 20);
        }};
        look();
    }})"""


class Firefox:
    """Headless Firefox.

    :param path: executable.
    :param profile: empty directory.
    :param pictures: directory of screenshots.
    """

    def __init__(self, path: Path, profile: Path, pictures: Path) -> None:
        self._pictures = pictures
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
        (profile / "user.js").write_text("\n".join(lines))
        words = [
            path,
            "--headless",
            "--no-remote",
            "--marionette",
            "--remote-allow-system-access",
            "--profile",
            profile,
        ]
        quiet: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        environment = os.environ | {"HOME": str(profile), "MOZ_CRASHREPORTER_DISABLE": "1"}
        self._process = subprocess.Popen(words, start_new_session=True, env=environment, **quiet)
        self._number = 0
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.create_connection(("127.0.0.1", self._port(profile)), DEADLINE)
            self._file = self._socket.makefile("rb")
            self._read()
            self.call("WebDriver:NewSession", capabilities={"alwaysMatch": {"acceptInsecureCerts": True}})
        except BaseException:
            self.close()
            raise

    def _port(self, profile: Path) -> int:
        end, path = monotonic() + DEADLINE, profile / "MarionetteActivePort"
        while True:
            with suppress(FileNotFoundError, ValueError):
                return int(path.read_text())
            assert self._process.poll() is None, "Firefox ended"
            assert monotonic() < end, "Firefox does not listen"
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)

    def _read(self) -> Any:
        length = b""
        while not length.endswith(b":"):
            more = self._file.read(1)
            assert more, "Firefox ended"
            length += more
        return json.loads(self._file.read(int(length[:-1])))

    def call(self, command: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        error, result = self._answer(command, **parameters)
        assert error is None, (command, error)
        return result

    def _answer(self, command: str, **parameters: Any) -> tuple[Any, Any]:
        self._number += 1
        data = json.dumps([0, self._number, command, parameters]).encode()
        assert self._socket is not None
        self._socket.sendall(b"%d:%b" % (len(data), data))
        _, _, error, result = self._read()
        return error, result

    def run(self, script: str) -> Any:
        """Return the value of an expression, of which a promise is awaited; run statements, which have no value."""
        options = {"args": [], "sandbox": None, "newSandbox": False}
        whole = f"return (async () => ({script}))();"
        error, result = self._answer("WebDriver:ExecuteScript", script=whole, **options)
        if error is not None and error["message"].startswith("SyntaxError"):
            return self.call("WebDriver:ExecuteScript", script=script, **options)["value"]
        assert error is None, (script, error)
        return result["value"]

    def until(self, condition: str) -> None:
        """Wait until a condition holds on the page."""
        script = promise_of(condition, 20.0)
        assert any(self.run(script) for _ in range(6)), f"never: {condition}\n{self.run('document.body.innerText')}"

    @property
    def errors(self) -> list[str]:
        """Uncaught exceptions, and what the Content-Security-Policy blocked, on all pages so far."""
        found: list[str] = self._run_privileged(ERRORS)
        return found

    def _run_privileged(self, script: str) -> Any:
        self.call("Marionette:SetContext", value="chrome")
        try:
            return self.run(script)
        finally:
            self.call("Marionette:SetContext", value="content")

    def key(self, name: str) -> None:
        """Press a key."""
        self._press(KEYS[name])

    def type(self, text: str) -> None:
        """Enter text into the focused element."""
        self._press(text)

    def _press(self, text: str) -> None:
        steps = [{"type": step, "value": sign} for sign in text for step in ("keyDown", "keyUp")]
        self.call("WebDriver:PerformActions", actions=[{"type": "key", "id": "keyboard", "actions": steps}])

    def go(self, url: str) -> None:
        """Open a page and wait until it has loaded."""
        self.call("WebDriver:Navigate", url=url)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size and the colour scheme of the page, and wait for them."""
        scheme = "dark" if dark else "light"
        self._run_privileged(f"Services.prefs.setIntPref({json.dumps(SCHEME)}, {int(not dark)})")
        frame = self.run("outerHeight - innerHeight")
        # A window has a minimum width, a page in it has not.
        self._run_privileged(f"gBrowser.selectedBrowser.style.maxWidth = '{width}px'")
        self.call("WebDriver:SetWindowRect", width=width, height=height + frame)
        self.until(f"innerWidth === {width} && matchMedia('(prefers-color-scheme: {scheme})').matches")

    def keep(self, name: str) -> None:
        """Save a screenshot of the page."""
        self._pictures.mkdir(parents=True, exist_ok=True)
        error, answer = self._answer("WebDriver:TakeScreenshot", full=True)
        if error is not None:  # The page is too high for a screenshot; take what is visible.
            answer = self.call("WebDriver:TakeScreenshot", full=False)
        picture = answer["value"]
        (self._pictures / f"{name}.png").write_bytes(b64decode(picture))

    def close(self) -> None:
        """Terminate Firefox with all of its processes."""
        if self._socket is not None:
            with suppress(AssertionError, OSError, ValueError):
                self.call("Marionette:Quit", flags=["eForceQuit"])
            with suppress(AttributeError):
                self._file.close()
            self._socket.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
