"""Console output of the demo: an act, its outcome and its details; and the checks that failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fyrehose_twisted.process.progress import ProgressBar

LABEL = 22


class Story:
    """Prints acts as they happen. All that is not as it has to be is marked, in any case.

    :param verbose: whether to print every check, and what commands print.
    :ivar checks: how many checks there were.
    :ivar wrong: how many of them failed.
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
        """Begin an act."""
        self._acts += 1
        self._act_began = time.monotonic()
        self._wrong_before = self.wrong
        self.say(f"\n{self._acts}. {what}")

    def outcome(self, what: str) -> None:
        """Say what came of the act, if nothing in it was wrong."""
        seconds = f"{time.monotonic() - self._act_began:.1f} s"
        self.say(f"   -> {what} ({seconds})" if self.wrong == self._wrong_before else f"   -> WRONG ({seconds})")

    def detail(self, label: str, text: str) -> None:
        """Print a detail of the act."""
        self.say(f"   {label:<{LABEL}} {text}")

    def remark(self, label: str, text: str) -> None:
        """Print a detail if everything is to be shown."""
        if self._verbose:
            self.detail(label, text)

    def command(self, command: str) -> None:
        """Show a command that is run."""
        self.say(f"   $ {command}")

    def printed(self, text: str) -> None:
        """Print what a command printed, if everything is to be shown."""
        if self._verbose:
            self.say(*(f"     {line}" for line in text.splitlines()))

    def check(self, what: str, found: int, expected: int = 0) -> None:
        """Compare a count with what it has to be."""
        wrong = found != expected
        self.checks += 1
        self.wrong += wrong
        tell = self.detail if wrong else self.remark
        tell(what, f"{found:,}{f'  WRONG, it has to be {expected:,}' if wrong else ''}")

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[Callable[..., object]]:
        """Show progress for the time of the block: with ``total``, of how much is done; without, of the time.

        :return: what to call now and then with how much is done.
        """
        form = "{desc}: {elapsed}" if total is None else None
        with ProgressBar(
            total=total, desc=f"   {what}", unit=" flights", leave=False, bar_format=form, miniters=0
        ) as bar:
            yield lambda done=0: bar.update(done - bar.n)
