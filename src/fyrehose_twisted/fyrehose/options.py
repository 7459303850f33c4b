"""Command-line options that the services share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.python.usage import UsageError

_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


def number(option: str) -> Any:
    """Return a coercion of the value of ``option`` to a float."""

    def coerce(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"--{option} {text!r} is not a number") from None

    return coerce


def check_name(name: str) -> None:
    """Check the value of ``--name``. :raises UsageError: if no stream can be called that."""
    if not name or len(name) > 128 or not set(name) <= _NAME_CHARACTERS or name.startswith("."):
        raise UsageError(f"--name {name!r}: use lower-case letters, digits, '-', '_' and '.', at most 128")


def existing_directory(path: Path) -> Path:
    """Return ``path``. :raises UsageError: if the directory that it lies in does not exist."""
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory; make it, or choose another place for {path.name}")
    return path
