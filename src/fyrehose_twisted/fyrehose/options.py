"""Command-line options that the services share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.python.reflect import namedAny
from twisted.python.usage import UsageError

_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


def integer(option: str, low: int, high: int) -> Any:
    """Return a coercion of the value of ``option`` to an integer from ``low`` to ``high``."""

    def coerce(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"--{option} {text!r} is not a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"--{option} {value} is outside {low} to {high}")
        return value

    coerce.coerceDoc = f"a whole number from {low} to {high}"  # type: ignore[attr-defined]  # usage.Options reads it
    return coerce


def number(option: str) -> Any:
    """Return a coercion of the value of ``option`` to a float."""

    def coerce(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"--{option} {text!r} is not a number") from None

    return coerce


def protocol_class(name: str, base: type) -> Any:
    """Return the class that a dotted name means.

    :raises UsageError: if there is none, or it is no subclass of ``base``.
    """
    try:
        found = namedAny(name)
    except Exception as error:
        raise UsageError(f"--protocol {name} cannot be imported: {error}; is its directory on PYTHONPATH?") from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise UsageError(f"--protocol {name} is not a subclass of {base.__module__}.{base.__name__}")
    return found


def check_name(name: str) -> None:
    """Check the value of ``--name``. :raises UsageError: if no stream can be called that."""
    if not name or len(name) > 128 or not set(name) <= _NAME_CHARACTERS or name.startswith("."):
        raise UsageError(f"--name {name!r}: use lower-case letters, digits, '-', '_' and '.', at most 128")


def existing_directory(path: Path) -> Path:
    """Return ``path``. :raises UsageError: if the directory that it lies in does not exist."""
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory; make it, or choose another place for {path.name}")
    return path
