"""Command-line options that the services of several wings have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from twisted.python.reflect import namedAny
from twisted.python.usage import UsageError

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError


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


class Listening(NamedTuple):
    """What is known of a server endpoint from its description.

    :ivar description: the whole of it; where it named no interface, it names loopback now.
    :ivar address: where it listens; ``None`` if that is not known here.
    :ivar local: whether only this machine can reach it.
    :ivar datagrams: whether it is a UDP port.
    """

    description: str
    address: Address | None
    local: bool
    datagrams: bool = False


def check_exposed(option: str, listening: Listening, protected: bool, how: str) -> None:
    """Check that strangers do not reach what is not protected.

    :raises ConfigurationError: if they do.
    """
    if not listening.local and not protected:
        raise ConfigurationError(
            f"--{option} {listening.description} is not on loopback, and everybody could use it: give {how}, or --open"
            " if that is meant"
        )


def try_directory(option: str, path: Path) -> None:
    """See whether a directory can be written, or made. :raises ConfigurationError: if not."""
    existing = path
    while not os.path.exists(existing):  # Path.exists raises where nobody may look, or a name is too long.
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--{option} {path} cannot be written, because of {existing}")
