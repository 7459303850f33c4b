"""Shell that runs the commands of the pages."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from suite.processes import environment

from documented.environments import CORE, Environments, without_test_environment
from documented.pages import ROOT, Install, Page

FreePort = Callable[[], int]

HANGS = 300.0
"""Seconds after which a command counts as hanging; no result depends on it, because commands end by themselves."""
HANGS_ON_SPARK = 900.0
"""The same for a command on Spark, which takes all cores for half a minute, and longer beside other tests."""
PAUSE = 0.05
"""Seconds between two attempts of a command whose output does not match yet."""

DEFAULT_PORTS = (
    *("2323", "2324", "2325", "2424", "6174", "6175", "6176", "6180", "6181", "6182", "6184", "6185", "6186", "6667"),
    *("7878", "7879", "7880", "7888", "7891", "7892", "8878", "8879", "8880", "8888", "8891"),
    *("8000", "8480", "8481", "8482", "9100", "9101", "15002"),
)
"""Ports named on the pages, which are replaced by free ones."""

DEFAULTS = [
    (r"\bfyrehose (?:pub|sub|ping)\b", "--backbone", "-b", "127.0.0.1:2323"),
    (r"\bfyrehose-backbone\b(?!.* --stream )", "--port", "-p", "2323"),
    (r"\bfyrehose-(?:client|journal|frontend)\b", "--backbone", "-b", "127.0.0.1:2323"),
    (r"\bfyrehose-query\b", "--http", "--http", "tcp:8480"),
    (r"\bfyrehose-frontend\b", "--http", "--http", "tcp:8481"),
    (r"\bfyrehose-frontend\b", "--lines", "--lines", "tcp:8482"),
    (r"\bfyrehose parcels publish\b", "--node", "--node", "127.0.0.1:7878"),
    (r"\bfyrehose parcels (?:follow|cluster|state)\b", "--http", "--http", "http://127.0.0.1:8878"),
    (r"\b(?:(?:async_)?ticker|log_shipper)\.py \w+", "--backbone", "--backbone", "127.0.0.1:2323"),
    (r"\bsse_app\.py\b", "--backbone", "--backbone", "127.0.0.1:2323"),
    (r"\blossy_relay\.py\b", "--backbone", "--backbone", "127.0.0.1:2323"),
    (r"\blossy_relay\.py\b", "--port", "--port", "2424"),
]
"""Commands that use a default port, with the option that sets it."""

LOOKS = re.compile(
    r"(?:cat|grep|head|ls|tail) "
    r"|fyrehose (?:journal ls|journal cat(?! .*--follow)|parcels (?:cluster|state)|hydra status|freenet status)(?: |$)"
    r"|curl -s(?!(?s:.*)(?: -d | --data| -[oDX] )) "
    r"|python -c \"import urllib\.request as r; print\(r\.urlopen\('[^',]*'\)"
)
"""Commands without side effects. They are retried until their output matches."""

ON_SPARK = "fyrehose-pipeline ", "fyrehose-experiments "
"""Prefixes of commands that start Spark."""

MARK = "FYREHOSE_PAGE"
"""Environment variable that marks the processes of a page, including daemons."""


def pattern_of(shown: str) -> str:
    """Return a regular expression for output.

    ``...`` stands for anything in a line, or alone for any lines. Several blanks stand for two or more, since columns
    are wider where ports are longer.

    Whatever is before the last one is atomic, that is, taken where it first occurs. No match is missed by that, and the
    search on a long line that differs would otherwise take hours.
    """
    blocks = [""]
    for line in shown.splitlines():
        if line == "...":
            blocks.append("")
        else:
            blocks[-1] += _pattern_of_line(line)
    gap = r"(?:[^\n]*\n)*?"
    first, *others = blocks
    return first + "".join(f"(?>{gap}{block})" for block in others[:-1]) + "".join(gap + block for block in others[-1:])


def _pattern_of_line(line: str) -> str:
    parts = [re.sub(r"(?:\\ ){2,}", "[ ]{2,}", re.escape(part)) for part in line.rstrip().split("...")]
    first, *others = parts
    found = first + "".join(rf"(?>[^\n]*?{part})" for part in others[:-1])
    return found + "".join(rf"[^\n]*{part}" for part in others[-1:]) + r"[ \t]*\n"


class Terminal:
    """A shell whose output, and that of all that it starts, comes in one stream, as on a terminal.

    :ivar hangs: seconds after which a command counts as hanging.
    :ivar late: seconds in which output may still come after its command has ended, from a command in the background.
    """

    def __init__(self, directory: Path, free_port: FreePort, *, hangs: float = HANGS, late: float = HANGS) -> None:
        self.directory, self.hangs, self.late = directory, hangs, late
        self.ports = {name: str(free_port()) for name in DEFAULT_PORTS}
        (directory / "examples").symlink_to(ROOT / "examples")
        self._environment = without_test_environment() | {MARK: str(directory), "HOME": str(directory)}
        self._output, stream = os.pipe()
        self._status, self._status_end = os.pipe()
        self._buffer = b""
        self._over = False
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=stream,
            pass_fds=[self._status_end],
            start_new_session=True,
            umask=0o022,
        )
        os.close(stream)
        self._ended = os.pidfd_open(self._shell.pid)

    @property
    def output(self) -> str:
        """Output that was printed and not yet expected, as a terminal shows it: a carriage return restarts a line."""
        return re.sub(r"[^\n]*\r(?!\n)", "", self._buffer.decode(errors="replace"))

    def enter(self, programs: Path) -> None:
        """Find programs in this directory first, as after ``pip install`` in an environment that is activated."""
        path = f"{programs}:{self._environment['PATH']}"
        self._execute(f"export PATH='{path}' VIRTUAL_ENV='{programs.parent}'; hash -r", "", "")

    def spell_out(self, text: str) -> str:
        """Replace ports by free ones, and name them where a default would be used."""
        for command, long, short, value in DEFAULTS:
            if not re.search(rf" (?:{long}|{short})[ =]", text):
                text = re.sub(command, lambda found, say=f" {long} {value}": found[0] + say, text)
        return self.spell_ports(text)

    def spell_ports(self, text: str) -> str:
        """Replace ports by free ones."""
        return re.sub(rf"\b({'|'.join(self.ports)})\b", lambda found: self.ports[found[0]], text)

    def run(self, command: str, shown: str = "", where: str = "") -> None:
        """Run a command and wait for the output that the page shows after it.

        :param where: the page and line that complaints name.
        """
        on_spark = command.startswith(ON_SPARK)
        hangs = HANGS_ON_SPARK if on_spark else self.hangs
        said = f"{where + ': ' if where else ''}$ {command}"
        # Pages run concurrently, and the others are less patient.
        command, shown = ("nice " if on_spark else "") + self.spell_out(command), self.spell_ports(shown)
        if shown and LOOKS.match(command):
            self._look(command, shown, said, hangs)
            return
        # A job that has printed its last output may not have exited yet; a user would be slower to type the signal.
        redirection = "2> /dev/null" if "$(jobs -pr)" in command else ""
        status = self._execute(command, redirection, said, hangs)
        if not shown:
            assert status == 0, f"{said}\nended with status {status}:\n{self.output}"
            return
        deadline = time.monotonic() + self.late
        while not (found := re.match(pattern_of(shown), self.output)):
            # Only a background command prints after the last one has ended.
            late = self._execute('[ -n "$(jobs -pr)" ]', "", said) == 0
            if re.match(pattern_of(shown), self.output):
                continue
            # A command in the background that goes on to print is as late as a silent one.
            if not late or time.monotonic() >= deadline or not self._read(deadline):
                raise AssertionError(f"{said}\nshould show:\n{shown}\nbut shows:\n{self.output}")
        self._buffer = self.output[found.end() :].encode()

    def close(self) -> None:
        """End all processes of the page.

        :raises AssertionError: if a process has to be killed.
        """
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        os.close(self._status_end)
        remaining = self._end(signal.SIGTERM)
        if remaining:
            self._end(signal.SIGKILL)
        self._shell.wait()
        for descriptor in (self._output, self._status, self._ended):
            os.close(descriptor)
        assert not remaining, "these go on after SIGTERM:\n" + "\n".join(remaining)

    def _end(self, number: signal.Signals) -> list[str]:
        """Send a signal to all processes of the page, wait for their exit, and return the commands of the rest."""
        deadline = time.monotonic() + HANGS
        # Search twice: a process that exits during the first search may have left another one, as daemons do.
        while processes := self._processes() or self._processes():
            for process in processes:
                with suppress(ProcessLookupError):  # Workers end with their server.
                    signal.pidfd_send_signal(process, number)
            remaining = self._wait(processes, deadline)
            for process in processes:
                os.close(process)
            if remaining:
                return self._commands()
        return []

    def _wait(self, processes: list[int], deadline: float) -> int:
        """Wait for the exit of processes, and discard their output, which would block them on a full pipe.

        :return: number of processes that are running after the deadline.
        """
        remaining = len(processes)
        with selectors.DefaultSelector() as selector:
            for descriptor in (*processes, self._output):
                selector.register(descriptor, selectors.EVENT_READ)
            while remaining and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fd != self._output:
                        remaining -= 1
                    elif os.read(self._output, 65_536):
                        continue
                    selector.unregister(key.fd)
        return remaining

    def _pids(self) -> list[int]:
        """Return the ids of the marked processes, including daemons; a zombie has no mark."""
        mark, found = f"{MARK}={self.directory}".encode(), []
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                if mark in environment(pid):
                    found.append(int(pid))
        return found

    def _processes(self) -> list[int]:
        """Return a descriptor of each process of the page."""
        found = []
        for pid in self._pids():
            with suppress(ProcessLookupError):
                found.append(os.pidfd_open(pid))
        return found

    def _commands(self) -> list[str]:
        found = []
        for pid in self._pids():
            with suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return found

    def _execute(self, command: str, redirection: str, said: str, hangs: float = HANGS) -> int:
        """Run a command and return its status.

        :raises AssertionError: if it hangs, or ends the shell.
        """
        assert self._shell.stdin is not None
        deadline = time.monotonic() + hangs
        line = f"{{ {command}\n}} </dev/null {redirection}\necho $? >&{self._status_end}\n"
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()
        answer = b""
        while not answer.endswith(b"\n"):
            if not self._read(deadline, self._status, self._ended):
                raise AssertionError(f"{said}\ndoes not end within {hangs:g} s; so far it shows:\n{self.output}")
            if self._is_ready(self._status):
                answer += os.read(self._status, 64)
            elif self._is_ready(self._ended):
                raise AssertionError(f"{said}\nends the shell; so far it shows:\n{self.output}")
        # Output that was written before the status.
        while self._read(time.monotonic()):
            pass
        return int(answer)

    def _look(self, command: str, shown: str, said: str, hangs: float) -> None:
        seen = self.directory / ".seen"
        deadline = time.monotonic() + hangs
        while True:
            self._execute(command, f"> {seen} 2>&1", said, hangs)
            text = seen.read_text(encoding="utf-8", errors="replace")
            if re.fullmatch(pattern_of(shown), text):
                return
            if time.monotonic() >= deadline:
                raise AssertionError(f"{said}\nshould show:\n{shown}\nbut shows:\n{text}{self.output}")
            self._read(time.monotonic() + PAUSE)

    @staticmethod
    def _is_ready(descriptor: int) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            return bool(selector.select(0))

    def _read(self, deadline: float, *others: int) -> bool:
        """Wait for output, or for something on ``others``; return whether there was any before the deadline."""
        while True:
            with selectors.DefaultSelector() as selector:
                for descriptor in others if self._over else (self._output, *others):
                    selector.register(descriptor, selectors.EVENT_READ)
                if not selector.get_map():
                    return False
                ready = [key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))]
            if self._output not in ready:
                return bool(ready)
            data = os.read(self._output, 65_536)
            self._buffer += data
            self._over = not data
            if data or len(ready) > 1:
                return True


def run_page(page: Page, terminal: Terminal, environments: Environments) -> None:
    """Run a page: install, save its files, run its commands, and compare their output.

    Each command has the distributions that the lines above it install, and no others.
    """
    installed: frozenset[str] = frozenset()
    entered = installed
    for step in page.steps:
        if isinstance(step, Install):
            installed |= step.requirements
            continue
        if step.runs:
            assert installed, f"{page.name}:{step.line}: no line above says what to install, such as `pip install .`"
            if installed != entered:
                terminal.enter(environments.programs(installed))
                entered = installed
        if step.language in ("python", "sql") and (step.file_name or "runnable" in step.marks):
            path = terminal.directory / (step.file_name or f"block_{step.line}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(terminal.spell_ports(step.text), encoding="utf-8")
            if "runnable" in step.marks:
                terminal.run(f"python {path.name}", where=f"{page.name}:{step.line}")
        elif step.language == "console":
            for command, shown, line in step.commands:
                terminal.run(command, shown, f"{page.name}:{line}")
    assert not terminal.output, f"{page.name} does not show:\n{terminal.output}"


def run_page_in(directory: Path, page: Page, free_port: FreePort, environments: Environments) -> None:
    """Run a page in a directory of its own, and end its processes."""
    terminal = Terminal(directory, free_port)
    try:
        run_page(page, terminal, environments)
    finally:
        terminal.close()


def open_terminal(directory: Path, free_port: FreePort, environments: Environments) -> Terminal:
    """Return a terminal that has what ``pip install .`` installs."""
    programs = environments.programs(CORE)
    terminal = Terminal(directory, free_port)
    terminal.enter(programs)
    return terminal
