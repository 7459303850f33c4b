"""Progress bar for terminals."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from tqdm import tqdm


class ProgressBar(tqdm):  # type: ignore[misc]  # tqdm has no types.
    """tqdm bar that is disabled if standard error is closed or not a terminal.

    :param file: output stream [standard error].
    """

    monitor_interval = 0  # tqdm's thread would outlive the reactor and exist at forks.
    _is_made = False

    def __init__(self, *arguments: Any, file: TextIO | None = None, disable: bool = False, **options: Any) -> None:
        file = sys.stderr if file is None else file
        super().__init__(*arguments, file=file, disable=disable or file is None or not file.isatty(), **options)
        self._is_made = True

    def close(self) -> None:
        """Close the bar."""
        if self._is_made:  # A signal may interrupt the constructor.
            super().close()
