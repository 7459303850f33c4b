"""Option checks shared by the services."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from twisted.python.usage import UsageError

from fyrehose_twisted.net.addresses import ip_version

_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


def float_option(option: str) -> Any:
    """Return a function that converts the value of ``option`` to a float."""

    def coerce(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"--{option} {text!r} is not a number") from None

    return coerce


def check_stream_name(name: str) -> None:
    """Check the value of ``--name``. :raises UsageError: if it is not a valid stream name."""
    if not name or len(name) > 128 or not set(name) <= _NAME_CHARACTERS or name.startswith("."):
        raise UsageError(f"--name {name!r}: use lower-case letters, digits, '-', '_' and '.', at most 128")


def ipv4_interface(text: str) -> IPv4Address:
    """Parse the value of ``--interface``. :raises UsageError: if it is not an IPv4 address."""
    try:
        return IPv4Address(text)
    except ValueError:
        ipv6 = ip_version(text.strip("[]")) == 6
        hint = ": a backbone uses IPv4 only, so give an IPv4 address" if ipv6 else " is not an IPv4 address"
        raise UsageError(f"--interface {text!r}{hint}") from None


def require_parent_directory(path: Path) -> Path:
    """Return ``path``. :raises UsageError: if its parent directory does not exist."""
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory; create it, or choose another path for {path.name}")
    return path
