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
        words = [path, "--headless", "--no-remote", "--marionette", "--profile", profile]
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
        self._number += 1
        data = json.dumps([0, self._number, command, parameters]).encode()
        assert self._socket is not None
        self._socket.sendall(b"%d:%b" % (len(data), data))
        _, _, error, result = self._read()
        assert error is None, (command, error)
        return result

    def run(self, script: str) -> Any:
        """Return the value of an expression; a promise is awaited."""
        whole = f"return (async () => ({script}))();"
        return self.call("WebDriver:ExecuteScript", script=whole, args=[], sandbox=None, newSandbox=False)["value"]

    def until(self, condition: str) -> None:
        """Wait until a condition holds on the page."""
        script = promise_of(condition, 20.0)
        assert any(self.run(script) for _ in range(6)), f"never: {condition}\n{self.run('document.body.innerText')}"

    def go(self, url: str) -> None:
        """Open a page and wait until it has loaded."""
        self.call("WebDriver:Navigate", url=url)

    def size(self, width: int, height: int) -> None:
        """Resize the page and wait for the new size."""
        frame = self.run("[outerWidth - innerWidth, outerHeight - innerHeight]")
        self.call("WebDriver:SetWindowRect", width=width + frame[0], height=height + frame[1])
        self.until(f"innerWidth === {width}")

    def keep(self, name: str) -> None:
        """Save a screenshot of the page."""
        self._pictures.mkdir(parents=True, exist_ok=True)
        picture = self.call("WebDriver:TakeScreenshot", full=True)["value"]
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
