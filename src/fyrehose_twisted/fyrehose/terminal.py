"""What the subcommands of ``fyrehose`` share: standard input and output, and how to say what went wrong."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from twisted.internet import stdio
from twisted.internet.protocol import Protocol

from fyrehose_twisted.secret import read_secret


def complain(problem: object) -> int:
    """Say what went wrong in one line, and return the exit status for it."""
    print(f"fyrehose: {problem}", file=sys.stderr)
    return 1


def secret_of(options: argparse.Namespace) -> bytes | None:
    """Return the shared secret that ``--secret-file`` names. :raises ConfigurationError: if there is none in it."""
    return read_secret(options.secret_file) if options.secret_file else None


def standard_io(protocol: Protocol, read: int, write: int, reactor: Any) -> Any:
    """Connect ``protocol`` to two file descriptors and return its transport."""
    make: Any = stdio.StandardIO  # Its type depends on the platform.
    return make(protocol, stdin=read, stdout=write, reactor=reactor)
