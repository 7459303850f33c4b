"""Progress of long work: a bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from tqdm import tqdm


class ProgressBar(tqdm):  # type: ignore[misc]  # tqdm has no types.
    """A tqdm bar that is silent where standard error is closed, or no terminal. The one way to show progress here.

    :param file: where to write [standard error].
    """

    monitor_interval = 0  # tqdm's thread would outlive a reactor and be there when processes are forked.
    _is_made = False

    def __init__(self, *arguments: Any, file: TextIO | None = None, disable: bool = False, **options: Any) -> None:
        file = sys.stderr if file is None else file
        super().__init__(*arguments, file=file, disable=disable or file is None or not file.isatty(), **options)
        self._is_made = True

    def close(self) -> None:
        """End the bar; nothing is shown afterwards."""
        if self._is_made:  # A signal may come while it is made; then it is garbage already.
            super().close()
