"""Grammar of printed and logged text."""

from __future__ import annotations


def pluralize(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 row``, or ``1,204 rows``.

    :param noun: singular.
    :param plural: plural, if it is not ``noun`` with an ``s``.
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
