"""What may change while a service runs: limits in a file, and tokens, read anew on SIGHUP.

A service that has limits keeps them in a dataclass, and says of which a file may speak::

    KNOWN = limits_of(QueryConfig(), "max_streams", "streams_per_client")

    def read() -> QueryConfig:
        return with_limits(config, path, KNOWN)

    Reloading(read, service.reconfigure, reactor).start()

``read`` is called at the start, too, where what it raises is one line for the operator. A file that has more than
numbers names its checks: ``read_limits(path, {"max-streams": whole(1, 10_000), "allow": texts})``.
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
"""Bytes of a file with limits."""

Check = Callable[[Any], Any]
"""Returns a value as it is to be used. :raises ValueError: if it will not do; its text says what would."""

ValueT = TypeVar("ValueT")


def integer_between(low: int, high: int) -> Check:
    """Return a check for whole numbers."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return check


def positive_number(value: Any) -> float:
    """Check that a value is a number above 0."""
    if type(value) not in (int, float) or not 0 < value < float("inf"):
        raise ValueError("a number above 0")
    return float(value)


def non_empty_strings(value: Any) -> list[str]:
    """Check that a value is a list of texts, and not empty: nobody can tell whether that means none or all."""
    if not value or not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError('a list of texts, such as ["10.0.0.0/8"]')
    return value


def read_limits(
    path: Path, known: Mapping[str, Check], aliases: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return what a TOML file says, checked.

    :param known: which names there may be, and how the value of each is checked.
    :param aliases: current name by former name; a former one is still read.
    :raises ConfigurationError: if it cannot be read, or says something else.
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
    """Return the checks for fields of a dataclass that are numbers, by their names with hyphens.

    :param names: which fields a file may set.
    """
    return {
        name.replace("_", "-"): integer_between(1, 2**31) if type(getattr(config, name)) is int else positive_number
        for name in names
    }


def with_limits(config: ValueT, path: Path | None, known: Mapping[str, Check]) -> ValueT:
    """Return a dataclass with what a file says in place of its own.

    :raises ConfigurationError: see :func:`read_limits`.
    """
    if path is None:
        return config
    found = {name.replace("-", "_"): value for name, value in read_limits(path, known).items()}
    changed: ValueT = replace(config, **found)  # type: ignore[type-var]
    return changed


def diff(old: Any, new: Any) -> list[str]:
    """Return how two dataclasses of the same kind differ; of what is secret not even whether."""
    return [
        f"{one.name.replace('_', '-')} {getattr(old, one.name)} -> {getattr(new, one.name)}"
        for one in fields(old)
        if one.repr and repr(getattr(old, one.name)) != repr(getattr(new, one.name))
    ]


class ReloadOnHup(Generic[ValueT]):
    """Reads something on each SIGHUP, and applies it. What cannot be read changes nothing.

    :param read: raises :class:`~fyrehose_twisted.errors.FyrehoseError` if that is not possible; ``None`` where there is
        nothing to read.
    :param apply: takes what was read, and returns what has changed, in words.
    """

    log = Logger()

    @staticmethod
    def ignore(reactor: Any) -> ReloadOnHup[None]:
        """Return a Reloading for a service without limits. It only keeps SIGHUP from killing the process.

        systemd takes such an end for a clean exit and restarts nothing. A handler of the application is left alone.
        """
        return ReloadOnHup(None, lambda read: [], reactor)

    def __init__(self, read: Callable[[], ValueT] | None, apply: Callable[[ValueT], list[str]], reactor: Any) -> None:
        self._read = read
        self._apply = apply
        self._reactor = reactor

    @property
    def is_ignoring(self) -> bool:
        """Whether there is nothing to read."""
        return self._read is None

    def start(self) -> None:
        """Begin to listen to the signal."""
        _register(self, self._reactor)

    def stop(self) -> None:
        """Listen no more."""
        _unregister(self)

    def reload(self) -> None:
        """The signal came."""
        if self._read is None:
            self.log.info("SIGHUP: there is nothing to read anew")
            return
        try:
            told = self._apply(self._read())
        except FyrehoseError as error:
            self.log.error("SIGHUP: nothing is changed: {error}", error=error)
        else:
            self.log.info("SIGHUP: {changes}", changes="; ".join(told) or "nothing has changed")


# A process has one handler for a signal, and may have several services.
_reloaders: list[ReloadOnHup[Any]] = []
_previous_handler: Any = None


def _register(reloader: ReloadOnHup[Any], reactor: Any) -> None:
    global _previous_handler

    def tell() -> None:
        with systemd_notifier.reloading():
            for one in list(_reloaders):
                one.reload()

    if not _reloaders:
        # Ignored is what nohup and some supervisors leave behind. It is no handler of the application.
        if reloader.is_ignoring and signal.getsignal(signal.SIGHUP) not in (signal.SIG_DFL, signal.SIG_IGN):
            return
        # A handler runs between any two instructions; the reactor calls this between two events.
        try:
            _previous_handler = signal.signal(signal.SIGHUP, lambda number, frame: reactor.callFromThread(tell))
        except ValueError:  # The reactor runs in a thread of somebody else's program, to whom signals belong.
            return
    _reloaders.append(reloader)


def _unregister(reloader: ReloadOnHup[Any]) -> None:
    if reloader in _reloaders:
        _reloaders.remove(reloader)
        if not _reloaders:
            # What was set by something else than Python is not known to it.
            signal.signal(signal.SIGHUP, signal.SIG_DFL if _previous_handler is None else _previous_handler)
