"""Marks for mypyc, which compiles the pure modules if it is asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**attributes: Any) -> Any:
        """Return a decorator that does nothing: mypyc reads the mark, and its package is not required to run."""
        return lambda cls: cls
