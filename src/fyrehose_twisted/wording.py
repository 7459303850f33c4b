"""Grammar of what commands print and services log."""

from __future__ import annotations


def counted(count: int, what: str, plural: str | None = None) -> str:
    """Return ``1 row``, or ``1,204 rows``.

    :param what: one of them.
    :param plural: several of them, where that is not ``what`` with an ``s``.
    """
    return f"{count:,} {what if count == 1 else plural or what + 's'}"
