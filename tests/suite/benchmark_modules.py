"""Import of the modules of the benchmarks, some of whose packages have the names of folders of the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
AMBIGUOUS = {path.name for path in BENCHMARKS.iterdir()} & {path.name for path in (ROOT / "tests").iterdir()}


@contextmanager
def importable_benchmarks(*folders: Path) -> Iterator[None]:
    """Let the block import from the benchmarks, and from ``folders``; other tests do not notice it."""
    path, hidden = list(sys.path), _take_ambiguous()
    sys.path[:0] = [str(BENCHMARKS), *map(str, folders)]
    try:
        yield
    finally:
        sys.path[:] = path
        _take_ambiguous()
        sys.modules.update(hidden)


def _take_ambiguous() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in AMBIGUOUS}
