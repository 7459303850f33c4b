"""Values of options: coercion and checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.python.reflect import namedAny
from twisted.python.usage import UsageError


def integer_option(option: str, low: int, high: int) -> Any:
    """Return a coercion of the value of ``option`` to an integer from ``low`` to ``high``."""
    return _coercion(option, low, high, int, "a whole number", "d")


def number_option(option: str, low: float, high: float) -> Any:
    """Return a coercion of the value of ``option`` to a number from ``low`` to ``high``."""
    return _coercion(option, low, high, float, "a number", "g")


def _coercion(option: str, low: float, high: float, convert: Callable[[str], float], kind: str, form: str) -> Any:
    def coerce(text: str) -> float:
        try:
            value = convert(text)
        except ValueError:
            raise ValueError(f"--{option} {text!r} is not {kind}") from None
        if not low <= value <= high:
            raise ValueError(f"--{option} {value:{form}} is outside {low:{form}} to {high:{form}}")
        return value

    coerce.coerceDoc = f"{kind} from {low:{form}} to {high:{form}}"  # type: ignore[attr-defined]  # usage.Options reads it
    return coerce


def subclass_named(option: str, name: str, base: type) -> Any:
    """Return the class with a dotted name, which an option gives.

    :raises UsageError: if it does not exist or is not a subclass of ``base``.
    """
    try:
        found = namedAny(name)
    except Exception as error:
        raise UsageError(f"--{option} {name} cannot be imported: {error}; is its directory on PYTHONPATH?") from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise UsageError(f"--{option} {name} is not a subclass of {base.__module__}.{base.__name__}")
    return found


def require_choice(option: str, value: str, *choices: str) -> None:
    """Check that ``value`` is one of the choices. :raises UsageError: if not."""
    if value not in choices:
        allowed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise UsageError(f"--{option} {value!r}: choose {allowed}")
