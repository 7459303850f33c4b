"""The page of the query service, in a browser: what it shows, and whether it can be used."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"

DEADLINE = 40

PIPED = """
import os, sys
reads, writes, *command = sys.argv[1:]
for number, copy in ((int(reads), 13), (int(writes), 14)):
    os.dup2(number, copy)
os.dup2(13, 3)
os.dup2(14, 4)
os.execvp(command[0], command)
"""
"""Chromium reads commands from descriptor 3, and answers on descriptor 4."""


class Browser:
    """Chromium with one page, over the DevTools protocol."""

    def __init__(self, command: list[str]) -> None:
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        words = [sys.executable, "-c", PIPED, str(theirs_in), str(theirs_out), *command, "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            words, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number, self._rest, self._session = 0, b"", ""
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
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
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(answer["params"]["exceptionDetails"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 65_536)
            assert data, "the browser ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def run(self, script: str) -> Any:
        """Return what a script says."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, (script, answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until something is so on the page."""
        script = f"""new Promise((done) => {{
            const end = performance.now() + {DEADLINE * 1000};
            const look = () => {{
                let found = false;
                try {{ found = Boolean({condition}); }} catch (error) {{ }}
                if (found || performance.now() > end) done(found);
                else setTimeout(look, 20);
            }};
            look();
        }})"""
        assert self.run(script), f"never: {condition}\n{self.run('document.body.innerText')}"

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def key(self, name: str, **more: Any) -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        more |= {"key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
        text = {"text": "\r"} if name == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **more, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def keep(self, name: str) -> None:
        """Keep a picture of the page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        assert data.startswith(b"\x89PNG")
        (SCREENSHOTS / f"{name}.png").write_bytes(data)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)


@pytest.fixture
def open_browser(browser: Any) -> Iterator[Callable[[], Browser]]:
    opened: list[Browser] = []

    def made() -> Browser:
        opened.append(Browser([option for option in browser() if "virtual-time" not in option]))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


@pytest.fixture
def start_query(start: Any) -> Callable[..., Any]:
    """Start the service; return the program and its URL."""

    def started(directory: Path, *options: object) -> tuple[Any, str]:
        service = ("fyrehose-query", "--directory", directory, "--http=tcp:0", *options)
        program = start("twistd", "--nodaemon", "--pidfile=", *service)
        place = program.wait_for(r"--http: listening on (\S+)")[1]
        return program, f"http://{place}/"

    return started


def cell(row: str, title: str) -> str:
    """Return a script that tells what a table shows."""
    return (
        f"[...document.querySelectorAll('tbody tr')].find((row) => row.cells[0].textContent === {json.dumps(row)})"
        f".querySelector('td[data-label={json.dumps(title)}]').textContent"
    )


# Where there is no browser, `browser` skips before anything else is made.
def test_it_shows_how_everything_fares(
    open_browser: Any, start_query: Any, start_backbone: Any, start_journal: Any, load: Any, start: Any, tmp_path: Path
) -> None:
    page = open_browser()
    backbone = start_backbone("--metrics=tcp:0")
    metrics = backbone.program.wait_for(r"metrics at (http://\S+)")[1]
    journal = start_journal(backbone, "kept")
    publisher = start("fyrehose", "pub", "--backbone", backbone.text)
    publisher.finish(b"".join(b'{"n": %d, "kind": "%s"}\n' % (n, b"odd" if n % 2 else b"even") for n in range(1, 301)))
    journal.wait_for(300)
    program, url = start_query(tmp_path / "kept", "--watch", f"backbone={metrics}", "--watch=gone=http://127.0.0.1:9/")
    page.size(1400, 900)
    page.go(url)
    page.until("document.getElementById('state-text').textContent === 'Live'")

    # What it says is what the journal has.
    stream = "fyrehose://default"
    page.until(f"{cell(stream, 'Whole up to')} === '300'")
    assert page.run(cell(stream, "Missing")) == page.run(cell(stream, "Lost")) == "0"
    page.until(f"{cell('backbone', 'State')} === '✓ up'")
    assert page.run(cell("backbone", "Last number")) == "300"
    assert page.run(cell("backbone", "Journals")) == "1"
    page.until(f"{cell('gone', 'State')}.startsWith('✗')")

    # It goes on by itself.
    start("fyrehose", "pub", "--backbone", backbone.text).finish(b'{"n": 301}\n' * 50)
    page.until(f"{cell(stream, 'Whole up to')} === '350'")
    page.keep("dashboard-light")

    # By the keyboard alone: to a stream, into it, a filter, and back.
    for _ in range(30):
        page.key("Tab")
        if page.run("document.activeElement.textContent") == stream:
            break
    assert page.run("document.activeElement.matches(':focus-visible')")
    page.key("Enter")
    page.until("document.querySelectorAll('#list li').length === 20")
    assert page.run("document.querySelector('#list li .number').textContent") == "350"
    assert page.run("document.querySelector('#list .payload').textContent") == '{"n": 301}'
    page.run("document.getElementById('where').focus()")
    page.type("kind == 'odd' && n > `295`")
    page.key("Enter")
    page.until("document.querySelectorAll('#list li').length === 2")
    assert page.run("[...document.querySelectorAll('#list .number')].map((one) => one.textContent)[0]") == "299"
    page.keep("dashboard-records")
    page.run("document.getElementById('where').select()")
    page.type("kind ==")
    page.key("Enter")
    page.until("document.getElementById('where-error').textContent.includes('JMESPath')")
    page.key("Escape")
    page.until("!document.getElementById('records').open")
    assert page.run("document.activeElement.textContent") == stream

    # Dark, and on a phone.
    page.size(1400, 900, dark=True)
    page.keep("dashboard-dark")
    page.size(360, 740)
    assert page.run("document.documentElement.scrollWidth") <= 360
    page.keep("dashboard-phone")
    page.size(1400, 900)

    # What dies is shown as dead, with the last that was known; and so is the service itself.
    page.until(f"{cell('backbone', 'Last number')} === '350'")
    backbone.kill()
    page.until(f"{cell('backbone', 'State')}.startsWith('✗')")
    assert page.run(cell("backbone", "Last number")) == "350"
    program.signal(signal.SIGTERM).finish()
    page.until("document.getElementById('state').classList.contains('bad')")
    assert page.run("document.getElementById('state').getAttribute('role')") == "status"
    assert page.errors == []


def test_a_token_is_asked_for(open_browser: Any, start_query: Any, tmp_path: Path) -> None:
    page = open_browser()
    (tmp_path / "kept").mkdir()
    tokens = tmp_path / "tokens"
    tokens.write_text("ann correct-horse-battery\n")
    tokens.chmod(0o600)
    program, url = start_query(tmp_path / "kept", "--tokens-file", tokens)
    page.size(500, 700)
    page.go(url)
    page.until("!document.getElementById('login').hidden")
    assert page.run("document.activeElement.id") == "token"
    page.type("wrong-horse-battery")
    page.key("Enter")
    page.until("document.getElementById('login-error').textContent.includes('does not know')")
    page.type("correct-horse-battery")
    page.key("Enter")
    page.until("document.getElementById('state-text').textContent === 'Live'")
    page.until("document.getElementById('streams').textContent.includes('no journal')")
    assert "horse" not in program.out + program.err
    assert page.run("location.href") == url
    assert page.errors == []


def test_two_hundred_streams_are_no_burden(open_browser: Any, start_query: Any, tmp_path: Path) -> None:
    from fyrehose_twisted.journal.store import open_journal
    from fyrehose_twisted.record import Record

    page = open_browser()
    for number in range(200):
        stream = f"fyrehose://stream-{number:03}"
        journal = open_journal(tmp_path / "kept", stream)
        journal.append([Record(stream, 0, 1, 1_700_000_000_000_000, b"<img src=x onerror=alert(1)>\x1b[2J")])
        journal.close()
    _, url = start_query(tmp_path / "kept")
    page.size(1400, 900)
    page.go(url)
    page.until("document.querySelectorAll('#streams tbody tr').length === 200")
    page.run("window.kept = document.querySelector('#streams tbody tr')")
    before = page.run("document.getElementById('updated').textContent")
    page.until(f"document.getElementById('updated').textContent !== {json.dumps(before)}")
    # The same row is still there: only what has changed is touched.
    assert page.run("window.kept === document.querySelector('#streams tbody tr')")
    print(f"an update takes {page.run('document.documentElement.dataset.took')} ms")
    # What comes from the network is never markup.
    page.run("document.querySelector('#streams tbody button').click()")
    page.until("document.querySelectorAll('#list li').length === 1")
    assert page.run("document.querySelector('#list .payload').textContent") == "<img src=x onerror=alert(1)>\\u001b[2J"
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.errors == []
