"""Reload of limits and tokens on SIGHUP.

A service keeps its limits in a dataclass and declares which of them a file may set::

    KNOWN = limits_of(QueryConfig(), "max_streams", "streams_per_client")

    def read() -> QueryConfig:
        return with_limits(config, path, KNOWN)

    ReloadOnHup(read, service.reconfigure, reactor).start()

The service calls ``read`` at startup too, and reports its error as one line. A file with values other than numbers
needs explicit checks: ``read_limits(path, {"max-streams": integer_between(1, 10_000), "allow": non_empty_strings})``.
"""

from __future__ import annotations

import signal
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from twisted.logger import Logger

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.process.sd_notify import systemd_notifier

MAX_FILE = 2**20
"""Maximum size of a limits file, in bytes."""

Check = Callable[[Any], Any]
"""Function that validates and converts a value. :raises ValueError: with a description of valid values."""

ValueT = TypeVar("ValueT")


def integer_between(low: int, high: int) -> Check:
    """Return a check for integers from ``low`` to ``high``."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return check


def positive_number(value: Any) -> float:
    """Check that a value is a positive number."""
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        raise ValueError("a number above 0")
    return float(value)


def non_empty_strings(value: Any) -> list[str]:
    """Check that a value is a non-empty list of strings. An empty list would be ambiguous: none, or all."""
    if not value or not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError('a list of texts, such as ["10.0.0.0/8"]')
    return value


def read_limits(
    path: Path, known: Mapping[str, Check], aliases: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the checked values of a TOML file.

    :param known: check of each permitted name.
    :param aliases: current name by former name; former names are still accepted.
    :raises ConfigurationError: if the file cannot be read or has an invalid entry.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise ConfigurationError(f"limits file {path} is longer than {MAX_FILE:,} bytes")
        said = tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigurationError(f"limits file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"limits file {path} is not TOML: {error}") from None
    found = {}
    for given, value in said.items():
        name = aliases.get(given, given)
        if name != given and name in said:
            raise ConfigurationError(f"limits file {path}: {given} is the former name of {name}; leave it out")
        if name not in known:
            raise ConfigurationError(f"limits file {path}: there is no limit {given!r}; there are {', '.join(known)}")
        try:
            found[name] = known[name](value)
        except ValueError as error:
            raise ConfigurationError(f"limits file {path}: {given} is {error}, and not {value!r:.60}") from None
    return found


def limit_checks(config: Any, *names: str) -> dict[str, Check]:
    """Return checks for numeric fields of a dataclass, by field name with hyphens.

    :param names: fields that a file may set.
    """
    return {
        name.replace("_", "-"): integer_between(1, 2**31) if type(getattr(config, name)) is int else positive_number
        for name in names
    }


def with_limits(config: ValueT, path: Path | None, known: Mapping[str, Check]) -> ValueT:
    """Return a dataclass with the values of a file in place of its own.

    :raises ConfigurationError: see :func:`read_limits`.
    """
    if path is None:
        return config
    found = {name.replace("-", "_"): value for name, value in read_limits(path, known).items()}
    changed: ValueT = replace(config, **found)  # type: ignore[type-var]
    return changed


def diff(old: Any, new: Any) -> list[str]:
    """Return the differences between two dataclasses of the same type, without secret fields."""
    return [
        f"{one.name.replace('_', '-')} {getattr(old, one.name)} -> {getattr(new, one.name)}"
        for one in fields(old)
        if one.repr and repr(getattr(old, one.name)) != repr(getattr(new, one.name))
    ]


class ReloadOnHup(Generic[ValueT]):
    """Reload of a value on each SIGHUP. If reading fails, nothing changes.

    :param read: returns the new value, or raises :class:`~fyrehose_twisted.errors.FyrehoseError`; ``None`` if there is
        nothing to reload.
    :param apply: applies a value and returns descriptions of the changes.
    """

    log = Logger()

    @staticmethod
    def ignore(reactor: Any) -> ReloadOnHup[None]:
        """Return an instance for a service without limits, which only keeps SIGHUP from ending the process.

        systemd treats such an end as a clean exit and does not restart the service. A handler of the application is
        left in place.
        """
        return ReloadOnHup(None, lambda read: [], reactor)

    def __init__(self, read: Callable[[], ValueT] | None, apply: Callable[[ValueT], list[str]], reactor: Any) -> None:
        self._read = read
        self._apply = apply
        self._reactor = reactor

    @property
    def is_ignoring(self) -> bool:
        """Whether there is nothing to reload."""
        return self._read is None

    def start(self) -> None:
        """Start to handle the signal."""
        _register(self, self._reactor)

    def stop(self) -> None:
        """Stop handling the signal."""
        _unregister(self)

    def reload(self) -> None:
        """Read and apply the new value."""
        if self._read is None:
            self.log.info("SIGHUP: there is nothing to reload")
            return
        try:
            told = self._apply(self._read())
        except FyrehoseError as error:
            self.log.error("SIGHUP: no setting changed: {error}", error=error)
        else:
            self.log.info("SIGHUP: {changes}", changes="; ".join(told) or "no changes")


# A process has one handler per signal but may run several services.
_reloaders: list[ReloadOnHup[Any]] = []
_previous_handler: Any = None


def _register(reloader: ReloadOnHup[Any], reactor: Any) -> None:
    global _previous_handler

    def tell() -> None:
        with systemd_notifier.reloading():
            for one in list(_reloaders):
                one.reload()

    if not _reloaders:
        # SIG_IGN comes from nohup and some supervisors; it is not a handler of the application.
        if reloader.is_ignoring and signal.getsignal(signal.SIGHUP) not in (signal.SIG_DFL, signal.SIG_IGN):
            return
        # The reactor runs this between two events; a signal handler may run between any two instructions.
        try:
            _previous_handler = signal.signal(signal.SIGHUP, lambda number, frame: reactor.callFromThread(tell))
        except ValueError:  # The reactor does not run in the main thread, so signals belong to the host program.
            return
    _reloaders.append(reloader)


def _unregister(reloader: ReloadOnHup[Any]) -> None:
    if reloader in _reloaders:
        _reloaders.remove(reloader)
        if not _reloaders:
            # Python returns None for a handler that was not set from Python.
            signal.signal(signal.SIGHUP, signal.SIG_DFL if _previous_handler is None else _previous_handler)
