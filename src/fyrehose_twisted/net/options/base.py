"""Base of the options of the services."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from twisted.python import usage
from twisted.python.usage import UsageError

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.net.options.values import subclass_named

Parameter = list[Any]
"""A row of ``optParameters`` or ``optFlags``, which Twisted collects from all base classes."""


def fill_standard_descriptors() -> None:
    """Open /dev/null for each standard descriptor that the parent process has closed.

    Otherwise the reactor or a state file could get one of their numbers, which twistd replaces when it daemonizes.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


class ServiceOptions(usage.Options):
    """Options of a service under ``twistd``. Subclasses check them in :meth:`_check`.

    :cvar aliases: current option name by former name or letter. Former ones are accepted but not in ``--help``.
    """

    aliases: ClassVar[Mapping[str, str]] = {}
    optParameters: ClassVar[list[Parameter]] = []
    optFlags: ClassVar[list[Parameter]] = []

    def __init__(self) -> None:
        fill_standard_descriptors()
        super().__init__()
        for letter in self._former_letters():
            name = self.aliases[letter]
            self.synonyms[letter] = name if name in self.synonyms else name.replace("-", "_")
            self.shortOpt += f"{letter}:" if f"{name}=" in self.longOpt else letter

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Twisted: parse the command line.

        :raises UsageError: if an option is invalid.
        :raises SystemExit: instead under ``twistd``, which would print the error below the full help text.
        """
        given = sys.argv[1:] if options is None else options
        try:
            super().parseOptions([self._resolve_alias(argument) for argument in given])
        except UsageError as error:
            if self.parent is None:
                raise
            name = self.parent.subCommand
            problem = str(error).removeprefix("Parameter type enforcement failed: ")
            raise SystemExit(f"{name}: {problem}; see twistd {name} --help") from None

    def postOptions(self) -> None:
        """Twisted: check the options before the service starts. :raises UsageError: if they are invalid."""
        try:
            self._check()
        except (FyrehoseError, ValueError) as error:
            raise UsageError(str(error)) from error

    def getUsage(self, width: int | None = None) -> str:
        """Twisted: return the help text, without former letters."""
        former = {letter: self.synonyms.pop(letter) for letter in self._former_letters()}
        try:
            return super().getUsage(width)
        finally:
            self.synonyms.update(former)

    def _check(self) -> None:
        """Check the options, and store in them what the service is made of.

        :raises UsageError: if an option is invalid; also FyrehoseError and ValueError.
        """

    def absolute_path(self, option: str) -> Path | None:
        """Return the path that an option gives; ``None`` without one."""
        # twistd changes to this directory before the service starts.
        start = Path(self.parent["rundir"] if self.parent is not None else ".")
        return (start / self[option]).absolute() if self[option] else None

    def load_protocol(self, base: type) -> None:
        """Import the class of ``--protocol``, by default ``base``. :raises UsageError: if it is no subclass of it."""
        self["class"] = subclass_named("protocol", self["protocol"], base) if self["protocol"] else base

    def _former_letters(self) -> list[str]:
        return [former for former in self.aliases if len(former) == 1]

    def _resolve_alias(self, argument: str) -> str:
        option, equals, value = argument.partition("=")
        name = self.aliases.get(option.removeprefix("--")) if option.startswith("--") else None
        return argument if name is None else f"--{name}{equals}{value}"
