"""Descriptions of messages: one line in words, and fields for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, NamedTuple

SECRETS = frozenset(("token", "mac", "nonce", "proof", "cookie"))
"""Fields that are never printed: who has them may speak for their owner, or work on the secret that they prove."""
MAX_ITEMS = 64
"""Items of a list among the fields that are printed."""


class Description(NamedTuple):
    """One message in words."""

    kind: str
    """Name of the message in the documents."""
    text: str
    """Rest of the line."""
    fields: Mapping[str, Any] = {}
    """Fields for JSON."""


def message_fields(message: Any) -> dict[str, Any]:
    """Return the fields of a message for JSON, without secrets; byte strings are given by their size."""
    if is_dataclass(message):
        values = {field.name: getattr(message, field.name) for field in dataclass_fields(message)}
    else:
        values = message._asdict()
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in SECRETS:
            continue
        if isinstance(value, bytes):
            found[f"{name}_size"] = len(value)
        else:
            found[name] = _to_json(value)
    return found


def _to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return {"size": len(value)}
    if hasattr(value, "_asdict"):
        return message_fields(value)
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value[:MAX_ITEMS]]
    return value


def format_range(first: int, last: int) -> str:
    """Return ``7``, or ``7 to 9``."""
    return f"{first}" if first == last else f"{first} to {last}"


def excerpt(data: bytes, limit: int = 60) -> str:
    """Return the start of a payload as text, for people."""
    return repr(data[:limit])[1:] + ("..." if len(data) > limit else "")


def words(*parts: str) -> str:
    """Join the parts that are not empty with commas."""
    return ", ".join(filter(None, parts))
