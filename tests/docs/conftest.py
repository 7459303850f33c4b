"""Reads the pages of the documentation, and runs what they tell the reader to type."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

FreePort = Callable[[], int]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
"""Seconds for a command to end and for its output to come."""
SPARK_PATIENCE = 600.0
"""The same for a command on Spark, which takes all cores for half a minute, if the tests beside it leave it any."""

DEFAULT_PORTS = (
    *("2323", "2424", "6174", "6175", "6176", "6180", "6181", "6182", "6184", "6185", "6186", "6667"),
    *("8480", "8481", "8482", "9100", "9101"),
)
"""Ports that the pages name; each page gets free ones in their place."""

DEFAULTS = [
    (r"\bfyrehose (?:pub|sub|ping)\b", "--backbone", "-b", "127.0.0.1:2323"),
    (r"\bfyrehose-backbone\b", "--port", "-p", "2323"),
    (r"\bfyrehose-(?:client|journal|frontend)\b", "--backbone", "-b", "127.0.0.1:2323"),
    (r"\bfyrehose-query\b", "--http", "--http", "tcp:8480"),
    (r"\bfyrehose-frontend\b", "--http", "--http", "tcp:8481"),
    (r"\bfyrehose-frontend\b", "--lines", "--lines", "tcp:8482"),
    (r"\b(?:ticker|log_shipper)\.py \w+", "--backbone", "--backbone", "127.0.0.1:2323"),
    (r"\blossy_relay\.py\b", "--backbone", "--backbone", "127.0.0.1:2323"),
    (r"\blossy_relay\.py\b", "--port", "--port", "2424"),
]
"""Commands that use a port without naming it, and how to say it."""

LOOKS = ("cat ", "fyrehose journal ls ", "grep ", "head ", "ls ", "tail ")
"""Commands that only look. They are repeated until they show what the page shows."""

ON_SPARK = "fyrehose-pipeline ", "fyrehose-experiments "
"""How commands begin that start Spark."""


@dataclass(frozen=True)
class Block:
    """A fenced block: ``language`` and ``marks`` are the words behind the fence."""

    language: str
    marks: tuple[str, ...]
    text: str
    line: int

    @property
    def file_name(self) -> str | None:
        """The name in a first line ``# name.py``, or ``-- name.sql``: readers save the block under it."""
        named = re.match(r"(?:# ([\w.-]+\.py)|-- ([\w./-]+\.sql))\n", self.text)
        return named and (named[1] or named[2])

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Commands of a console block, each with the output that the page shows."""
        commands: list[tuple[str, str]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], ""))
            elif commands[-1][0].endswith("\\") and line.startswith("> "):
                commands[-1] = (f"{commands[-1][0]}\n{line[2:]}", "")
            else:
                commands[-1] = (commands[-1][0], f"{commands[-1][1]}{line}\n")
        return commands


@dataclass
class Page:
    """A Markdown file."""

    path: Path
    blocks: list[Block] = field(default_factory=list)
    prose: str = ""

    def __post_init__(self) -> None:
        fence, opened, lines = "", 0, []
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            if not fence:
                opening = re.match(r"(`{3,}|:{3,})\s*(.*)", line)
                if opening:
                    fence, info, opened, lines = opening[1], opening[2].split(), number, []
                else:
                    self.prose += line + "\n"
            elif line.rstrip() == fence:
                self.blocks.append(Block(info[0] if info else "", tuple(info[1:]), "\n".join([*lines, ""]), opened))
                fence = ""
            else:
                lines.append(line)
        assert not fence, f"{self.path}:{opened}: the fence is not closed"

    @property
    def links(self) -> list[str]:
        """Targets of the links in the prose."""
        return re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "`", self.prose))

    @property
    def anchors(self) -> set[str]:
        """What ``#...`` may point to, as GitHub and MyST derive it from headings."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    @property
    def runs(self) -> bool:
        """Whether there is anything to run."""
        return any(block.language == "console" or "runnable" in block.marks for block in self.blocks)

    @property
    def takes_long(self) -> bool:
        """Whether what there is to run starts Spark."""
        commands = [command for block in self.blocks if block.language == "console" for command, _ in block.commands]
        return any(command.startswith(ON_SPARK) for command in commands)


def pattern_of(shown: str) -> str:
    """A regular expression for output in which ``...`` stands for anything in a line, or alone for any lines."""
    lines = [
        r"(?:[^\n]*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", r"[^\n]*") + r"[ \t]*\n"
        for line in shown.splitlines()
    ]
    return "".join(lines)


class Terminal:
    """A shell whose output, and that of whatever it starts, comes in one stream, as on a terminal."""

    def __init__(self, directory: Path, free_port: FreePort) -> None:
        self.directory = directory
        self.ports = {name: str(free_port()) for name in DEFAULT_PORTS}
        (directory / "examples").symlink_to(ROOT / "examples")
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._output, stream = os.pipe()
        self._status, self._status_end = os.pipe()
        self._buffer = b""
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=stream,
            pass_fds=[self._status_end],
            start_new_session=True,
        )
        os.close(stream)

    @property
    def output(self) -> str:
        """What was printed and not yet expected, as a terminal shows it: a carriage return starts the line anew."""
        return re.sub(r"[^\n]*\r(?!\n)", "", self._buffer.decode(errors="replace"))

    def spell_out(self, text: str) -> str:
        """Replace ports by free ones, and name them where a default would be used."""
        for command, long, short, value in DEFAULTS:
            if not re.search(rf" (?:{long}|{short})[ =]", text):
                text = re.sub(command, lambda found, say=f" {long} {value}": found[0] + say, text)
        return self.spell_ports(text)

    def spell_ports(self, text: str) -> str:
        """Replace ports by free ones."""
        return re.sub(rf"\b({'|'.join(self.ports)})\b", lambda found: self.ports[found[0]], text)

    def run(self, command: str, shown: str = "") -> None:
        """Run a command and wait for what is shown after it."""
        on_spark = command.startswith(ON_SPARK)
        deadline = time.monotonic() + (SPARK_PATIENCE if on_spark else PATIENCE)
        # Pages run side by side, and the others have less patience.
        command, shown = ("nice " if on_spark else "") + self.spell_out(command), self.spell_ports(shown)
        if shown and command.startswith(LOOKS):
            self._look(command, shown, deadline)
            return
        # Nobody types so fast: what has said its last words may be a job still, and be gone before the signal comes.
        status = self._execute(command, "2> /dev/null" if "$(jobs -pr)" in command else "", deadline)
        if not shown:
            assert status == 0, f"$ {command}\nended with status {status}:\n{self.output}"
            return
        while not (found := re.match(pattern_of(shown), self.output)):
            if not self._read(deadline):
                raise AssertionError(f"$ {command}\nshould show:\n{shown}\nbut shows:\n{self.output}")
        self._buffer = self.output[found.end() :].encode()

    def close(self) -> None:
        """End everything that the page started, and complain about output that it does not show."""
        daemons = [int(path.read_text()) for path in self.directory.rglob("*.pid")]
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        os.close(self._status_end)
        for process in (self._shell.pid, *daemons):
            try:
                os.killpg(process, signal.SIGTERM) if process == self._shell.pid else os.kill(process, signal.SIGTERM)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):  # Until the last process has closed the stream.
            pass
        if time.monotonic() >= deadline:
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        os.close(self._output)
        os.close(self._status)

    def _execute(self, command: str, redirection: str, deadline: float) -> int:
        assert self._shell.stdin is not None
        line = f"{{ {command}\n}} </dev/null {redirection}\necho $? >&{self._status_end}\n"
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()
        answer = b""
        while not answer.endswith(b"\n"):
            if not self._read(deadline, self._status):
                raise AssertionError(f"$ {command}\ndoes not end; so far:\n{self.output}")
            with selectors.DefaultSelector() as ready:
                ready.register(self._status, selectors.EVENT_READ)
                if ready.select(0):
                    answer += os.read(self._status, 64)
        return int(answer)

    def _look(self, command: str, shown: str, deadline: float) -> None:
        seen = self.directory / ".seen"
        while True:
            self._execute(command, f"> {seen} 2>&1", deadline + PATIENCE)
            text = seen.read_text(encoding="utf-8")
            if re.fullmatch(pattern_of(shown), text):
                return
            if time.monotonic() >= deadline:
                raise AssertionError(f"$ {command}\nshould show:\n{shown}\nbut shows:\n{text}{self.output}")

    def _read(self, deadline: float, *others: int) -> bool:
        """Wait for output, or for something on ``others``; say whether there was any before the deadline."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._output, *others):
                selector.register(descriptor, selectors.EVENT_READ)
            ready = [key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))]
        if self._output in ready:
            data = os.read(self._output, 65_536)
            self._buffer += data
            return bool(data) or len(ready) > 1
        return bool(ready)


PAGES = [Page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cases = {
        "page": [pytest.param(page, id=name_of(page.path)) for page in PAGES],
        "running_page": [
            pytest.param(page, id=name_of(page.path), marks=[pytest.mark.soak(seconds=120)] if page.takes_long else [])
            for page in PAGES
            if page.runs
        ],
        "example": [
            pytest.param(path, id=path.name)
            for path in sorted((ROOT / "examples").glob("*.py"))
            if "argparse" in path.read_text(encoding="utf-8")
        ],
    }
    for argument, values in cases.items():
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, values)


def run_page(page: Page, terminal: Terminal) -> None:
    """Do what a page says: save its files, type its commands, compare what comes."""
    for block in page.blocks:
        if block.language in ("python", "sql") and (block.file_name or "runnable" in block.marks):
            path = terminal.directory / (block.file_name or f"block_{block.line}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(terminal.spell_ports(block.text), encoding="utf-8")
            if "runnable" in block.marks:
                terminal.run(f"python {path.name}")
        elif block.language == "console":
            for command, shown in block.commands:
                terminal.run(command, shown)
    assert not terminal.output, f"{page.path} does not show:\n{terminal.output}"


def run_page_in(page: Page, directory: Path, free_port: FreePort) -> None:
    terminal = Terminal(directory, free_port)
    try:
        run_page(page, terminal)
    finally:
        terminal.close()


@pytest.fixture(scope="session", autouse=True)
def page_runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, free_port: FreePort
) -> Iterator[dict[str, Future[None]]]:
    """The runs of the selected pages, by name. They mostly wait, so they run side by side, and beside the tests."""
    cases = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    pages = [case["running_page"] for case in cases if "running_page" in case]
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield {
            name_of(page.path): pool.submit(run_page_in, page, tmp_path_factory.mktemp(page.path.stem), free_port)
            for page in pages
        }


@pytest.fixture
def terminal(tmp_path: Path, free_port: FreePort) -> Iterator[Terminal]:
    """A shell in an empty directory, from which ``examples`` can be reached."""
    opened = Terminal(tmp_path, free_port)
    yield opened
    opened.close()
