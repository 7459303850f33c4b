"""Console output of the demo: steps with their outcomes and details, and failed checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fyrehose_twisted.process.progress import ProgressBar

LABEL = 22


class Story:
    """Printer of steps. Failed checks are always marked.

    :param verbose: whether to print every check, and the output of commands.
    :ivar checks: number of checks.
    :ivar wrong: number of failed checks.
    """

    def __init__(self, *, verbose: bool) -> None:
        self.checks = self.wrong = 0
        self._verbose = verbose
        self._acts = self._wrong_before = 0
        self._began = self._act_began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the story began."""
        return time.monotonic() - self._began

    def say(self, *lines: str) -> None:
        """Print lines."""
        print(*lines, sep="\n", flush=True)

    def begin_act(self, what: str) -> None:
        """Begin a step."""
        self._acts += 1
        self._act_began = time.monotonic()
        self._wrong_before = self.wrong
        self.say(f"\n{self._acts}. {what}")

    def outcome(self, what: str) -> None:
        """Print the outcome of the step, if no check failed."""
        seconds = f"{time.monotonic() - self._act_began:.1f} s"
        self.say(f"   -> {what} ({seconds})" if self.wrong == self._wrong_before else f"   -> WRONG ({seconds})")

    def detail(self, label: str, text: str) -> None:
        """Print a detail of the step."""
        self.say(f"   {label:<{LABEL}} {text}")

    def remark(self, label: str, text: str) -> None:
        """Print a detail if verbose."""
        if self._verbose:
            self.detail(label, text)

    def command(self, command: str) -> None:
        """Print a command that is run."""
        self.say(f"   $ {command}")

    def printed(self, text: str) -> None:
        """Print the output of a command if verbose."""
        if self._verbose:
            self.say(*(f"     {line}" for line in text.splitlines()))

    def check(self, what: str, found: int, expected: int = 0) -> None:
        """Compare a count with the expected one."""
        wrong = found != expected
        self.checks += 1
        self.wrong += wrong
        tell = self.detail if wrong else self.remark
        tell(what, f"{found:,}{f'  WRONG, expected {expected:,}' if wrong else ''}")

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[Callable[..., object]]:
        """Show progress during the block: of the work with ``total``, of the time without.

        :return: function to call with the amount done.
        """
        form = "{desc}: {elapsed}" if total is None else None
        with ProgressBar(
            total=total, desc=f"   {what}", unit=" flights", leave=False, bar_format=form, miniters=0
        ) as bar:
            yield lambda done=0: bar.update(done - bar.n)
