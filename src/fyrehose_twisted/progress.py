"""Progress of long work on standard error: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, TextIO

from tqdm import tqdm

LINE_INTERVAL = 10.0
"""Seconds between two lines where nothing can be rewritten in place."""


class ProgressBar(tqdm):  # type: ignore[misc]  # tqdm has no types.
    """A tqdm bar that stays readable in a log. The one way to show progress in this project.

    Standard error that is no terminal gets a line every :data:`LINE_INTERVAL` seconds, and a last one at the end unless
    ``leave`` is false. It is silent if standard error is closed.

    :param file: where to write [standard error].
    """

    monitor_interval = 0  # tqdm's thread would outlive a reactor and be there when processes are forked.
    _is_made = False

    def __init__(self, *arguments: Any, file: TextIO | None = None, disable: bool = False, **options: Any) -> None:
        file = sys.stderr if file is None else file
        self.in_place = file is not None and file.isatty()
        self._shown_at = time.monotonic()
        if not self.in_place:
            # With fixed steps a line comes when its time has come, whatever was counted before.
            options |= {"mininterval": LINE_INTERVAL / 10, "miniters": 0, "dynamic_ncols": False}
            if options.get("bar_format") is None:
                options["ncols"] = 0  # Only numbers. It would overrule a format.
        super().__init__(*arguments, file=file, disable=disable or file is None, **options)
        self._is_made = True

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        """tqdm: show how far it is."""
        if self.in_place:
            return super().display(msg, pos)
        now = time.monotonic()
        if now - self._shown_at >= LINE_INTERVAL:
            self._shown_at = now
            self._write_line()
        return True

    def clear(self, nolock: bool = False) -> None:
        """tqdm: make room for something else."""
        if self.in_place:
            super().clear(nolock)

    def close(self) -> None:
        """End the bar; nothing is shown afterwards."""
        if not self._is_made:  # A signal came while it was made, and it is garbage already.
            return
        if self.in_place or self.disable:
            super().close()
            return
        self.delay = math.inf  # tqdm itself then writes nothing.
        super().close()
        if self.leave:
            self._write_line()

    def _write_line(self) -> None:
        self.fp.write(f"{self}\n")
        self.fp.flush()
