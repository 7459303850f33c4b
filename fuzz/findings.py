"""Failing inputs, and regression inputs."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path

REGRESSIONS = Path(__file__).parent / "regressions"
"""Directory of each target, with a file ``NAME.hex`` for each input."""

SHRINK_SECONDS = 20.0
"""Time limit for shrinking an input."""


def regressions(target: str) -> dict[str, bytes]:
    """Return the regression inputs of a target by name."""
    paths = sorted((REGRESSIONS / target).glob("*.hex"))
    return {path.stem: bytes.fromhex(path.read_text()) for path in paths}


def failure(one: Callable[[bytes], None], data: bytes) -> str | None:
    """Return the failure of an input in one line, ``None`` if it passes."""
    try:
        one(data)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())[:200]
        return f"{type(error).__name__}: {text} ({Path(frame.filename).name}, line {frame.lineno})"
    return None


def _place(one: Callable[[bytes], None], data: bytes) -> tuple[type, str, int | None] | None:
    try:
        one(data)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return type(error), frame.filename, frame.lineno
    return None


def shrink(one: Callable[[bytes], None], data: bytes, seconds: float = SHRINK_SECONDS) -> bytes:
    """Return a shorter input that fails at the same place, if one is found in time."""
    place, until = _place(one, data), time.monotonic() + seconds
    size = len(data) // 2
    while size and place is not None:
        start = 0
        while start < len(data) and time.monotonic() < until:
            shorter = data[:start] + data[start + size :]
            if _place(one, shorter) == place:
                data = shorter
            else:
                start += size
        size //= 2
    return data
